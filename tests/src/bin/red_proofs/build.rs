//! Builds the tests with sabotage in them, and an ordinary command without.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a build with sabotage holds and no other does.
pub(crate) const VARIABLE: &str = "REFSTONE_SABOTAGE";

/// The tests, and what cargo is asked for to get them.
const BUILDS: [&[&str]; 2] = [
    &[
        "-p=refstone-tests",
        "-p=refstone",
        "--features=refstone-log/sabotage",
        "--test=log",
        "--test=crash",
        "--test=it",
    ],
    &["-p=refstone-tests", "--features=shuttle,refstone-log/sabotage", "--test=models"],
];

/// Executables by the names that the table has for them.
pub(crate) struct Built {
    tests: BTreeMap<String, PathBuf>,
    command: PathBuf,
}

impl Built {
    pub(crate) fn new() -> Result<Built, String> {
        let mut tests = BTreeMap::new();
        for arguments in BUILDS {
            tests.extend(cargo(&[&["test", "--no-run"], arguments].concat())?);
        }
        let mut commands = cargo(&["build", "-p=refstone-cli"])?;
        let command = commands.remove("refstone").ok_or("cargo built no command")?;
        Ok(Built { tests, command })
    }

    /// The executable and the test in it that a name such as `log::failures::…` means.
    pub(crate) fn find<'a>(&self, test: &'a str) -> Result<(&PathBuf, &'a str), String> {
        let (program, name) = test.split_once("::").ok_or(format!("{test} names no program"))?;
        let program = if program == "store" { "it" } else { program };
        let found = self.tests.get(program).ok_or(format!("{test} is in no program"))?;
        Ok((found, name))
    }

    /// The variable's name is in every program that can be sabotaged, and not in the command.
    pub(crate) fn ordinary_build_has_no_trace(&self) -> Result<(), String> {
        for program in self.tests.values() {
            if !holds(program, VARIABLE)? {
                return Err(format!("{}: cannot be sabotaged", program.display()));
            }
        }
        match holds(&self.command, VARIABLE)? {
            true => Err(format!("{}: has traces of sabotage", self.command.display())),
            false => Ok(()),
        }
    }
}

fn holds(program: &PathBuf, text: &str) -> Result<bool, String> {
    let bytes = fs::read(program).map_err(|error| format!("{}: {error}", program.display()))?;
    Ok(bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// Runs cargo; returns the executables that it made, by the names of their targets.
fn cargo(arguments: &[&str]) -> Result<BTreeMap<String, PathBuf>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo does not run: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo {} failed", arguments.join(" ")));
    }
    let messages = output.stdout.split(|&byte| byte == b'\n');
    Ok(messages.filter_map(executable).collect())
}

fn executable(message: &[u8]) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_slice(message).ok()?;
    let name = message["target"]["name"].as_str()?.to_owned();
    Some((name, message["executable"].as_str()?.into()))
}
