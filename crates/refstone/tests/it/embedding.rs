//! The example program runs, and does what it says.

#[expect(dead_code, reason = "its `main` is for the command line")]
#[path = "../../examples/embed.rs"]
mod embed;

// Breaks: a second deployment that expects what is not there.
#[test]
fn the_example_deploys_twice_and_tells_of_both() {
    let dir = tempfile::tempdir().unwrap();
    let told = embed::deploy(&dir.path().join("board")).unwrap();
    let actors: Vec<_> = told.lines().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(actors, ["alice", "bob"]);
}
