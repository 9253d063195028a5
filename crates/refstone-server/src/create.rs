//! Repositories that come into being with their first push.

use std::io;
use std::path::PathBuf;

use refstone::{ErrorKind, ObjectFormat, RefName};

use crate::init::{InitError, InitOptions, init_in_parent};
use crate::wire::commands::PushRequest;

/// Whether a push to a name that does not exist creates the repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CreateOnPush {
    /// It is refused: there is no such repository.
    #[default]
    Never,
    /// It does, with SHA-1 objects.
    Allowed,
}

/// Creates the repository for a push. If another push was faster, that is as good.
pub(crate) async fn create(path: PathBuf, request: &PushRequest) -> Result<(), InitError> {
    let options =
        InitOptions { object_format: ObjectFormat::Sha1, initial_branch: initial_branch(request) };
    let shown = path.clone();
    let created = tokio::task::spawn_blocking(move || init_in_parent(&path, &options)).await;
    match created {
        Ok(Err(InitError::AlreadyExists { .. })) => Ok(()),
        Ok(other) => other,
        Err(panic) => Err(InitError::Io {
            path: shown,
            operation: "create it",
            source: io::Error::other(panic),
        }),
    }
}

/// Why a push could not create its repository, in words for the client: the reason without the
/// server's paths, which are for the operator.
pub(crate) fn told(error: &InitError) -> String {
    let reason = match error {
        InitError::Io { source, .. } => source.kind().to_string(),
        InitError::Git { .. } => "git cannot make its part".to_owned(),
        InitError::Log { source, .. } if source.kind() == ErrorKind::NoSpace => {
            io::ErrorKind::StorageFull.to_string()
        }
        InitError::Log { .. } => "its reference log cannot be made".to_owned(),
        InitError::AlreadyExists { .. } | InitError::Occupied { .. } | InitError::NoName { .. } => {
            "its name is taken".to_owned()
        }
    };
    format!("cannot create the repository: {reason}; the server's log has more")
}

/// Where `HEAD` shall point: to `main` or `master` if they are pushed, else to the first branch
/// that is, so that a clone of what was pushed checks something out.
fn initial_branch(request: &PushRequest) -> RefName {
    let names = request.commands.iter().map(|command| &command.name);
    let branches: Vec<RefName> = names
        .filter(|name| name.starts_with(b"refs/heads/"))
        .filter_map(|name| RefName::new(name.clone()).ok())
        .collect();
    let usual = [b"refs/heads/main".as_slice(), b"refs/heads/master"];
    let usual =
        usual.iter().find_map(|usual| branches.iter().find(|name| name.as_bytes() == *usual));
    let chosen = usual.or(branches.first()).cloned();
    chosen.unwrap_or_else(|| InitOptions::default().initial_branch)
}

#[cfg(test)]
mod tests {
    use refstone::ObjectId;

    use super::*;
    use crate::wire::commands::Command;

    fn chosen(names: &[&str]) -> String {
        let command = |name: &&str| Command {
            old: ObjectId::zero(ObjectFormat::Sha1),
            new: ObjectId::from_bytes(&[1; 20]).unwrap(),
            name: (*name).into(),
        };
        let request =
            PushRequest { commands: names.iter().map(command).collect(), ..PushRequest::default() };
        initial_branch(&request).to_string()
    }

    /// Red when a client is told where the server keeps its data, or not why there is no place.
    #[test]
    fn clients_are_told_the_reason_without_the_path() {
        let source = io::Error::new(io::ErrorKind::StorageFull, "no room at /srv/x");
        let full = told(&InitError::Io { path: "/srv".into(), operation: "sync", source });
        assert_eq!(
            full,
            "cannot create the repository: no storage space; the server's log has more"
        );
        let said = "fatal: /srv/x".to_owned();
        let git = told(&InitError::Git { path: "/srv".into(), said });
        assert!(git.contains("git cannot make its part") && !git.contains("/srv"), "{git}");
    }

    #[test]
    fn head_points_to_a_branch_that_is_pushed() {
        let (a, b) = ("refs/heads/a", "refs/heads/b");
        let (main, master) = ("refs/heads/main", "refs/heads/master");
        assert_eq!(chosen(&[a, master, main]), main);
        assert_eq!(chosen(&[a, master]), master);
        assert_eq!(chosen(&["refs/tags/t", "refs/heads/..", b, a]), b);
        assert_eq!(chosen(&["refs/tags/t"]), main);
    }
}
