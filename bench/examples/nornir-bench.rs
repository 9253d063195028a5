//! Runs the arms and prints one `BenchRun` as the last line of standard output.

fn main() -> anyhow::Result<()> {
    refstone_bench::arm::main()
}
