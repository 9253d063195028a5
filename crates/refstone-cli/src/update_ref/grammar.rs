//! What the commands of `git update-ref --stdin` mean: words become a [`Command`], or a
//! [`GrammarError`] in git's words. Nothing here knows a store.

use refstone::{Change, Deref, Edit, Expected, ObjectFormat, ObjectId, RefName, Target};

use super::fields::{Fields, c_text, first, told};
use super::script::Unparsed;
use super::words::{End, GrammarError, Verb};

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A change, or a check, that joins the transaction.
    Edit(Edit),
    /// The next edit is about the named ref itself.
    NoDeref,
    Start,
    Prepare,
    Commit,
    Abort,
}

/// What a command means beside its own words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    /// The hash that names the repository's objects.
    pub(super) objects: ObjectFormat,
    /// Which ref an edit of a symbolic ref means.
    pub(super) deref: Deref,
}

impl Unparsed {
    /// Reads the arguments; `warn` is told of what git accepts with a warning.
    pub(super) fn parse(
        &self,
        meaning: Meaning,
        warn: &mut dyn FnMut(String),
    ) -> Result<Command, GrammarError> {
        let fields = Fields { rest: self.arguments(), end: self.end };
        let parser = Parser { verb: self.verb, fields, meaning, warn };
        match self.verb {
            Verb::Option => parser.option(),
            Verb::Start => Ok(Command::Start),
            Verb::Prepare => Ok(Command::Prepare),
            Verb::Abort => Ok(Command::Abort),
            Verb::Commit => Ok(Command::Commit),
            _ => parser.edit().map(Command::Edit),
        }
    }
}

struct Parser<'a> {
    verb: Verb,
    fields: Fields<'a>,
    meaning: Meaning,
    warn: &'a mut dyn FnMut(String),
}

/// Which value of an edit a text talks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Side::Old => "<old-oid>",
            Side::New => "<new-oid>",
        }
    }
}

const FULL_IDS: &str = "a value is a full object id in hex digits: the store knows no objects, so \
                        it resolves neither abbreviations nor names";

impl Parser<'_> {
    fn option(self) -> Result<Command, GrammarError> {
        match self.fields.rest.strip_prefix(b"no-deref") {
            Some(rest) if first(rest) == self.fields.end.byte() => Ok(Command::NoDeref),
            _ => Err(told("option unknown", self.fields.rest)),
        }
    }

    fn edit(mut self) -> Result<Edit, GrammarError> {
        self.refuse_to_follow()?;
        let name = self.fields.argument()?;
        let name = self.name(name)?.ok_or_else(|| self.error("missing <ref>"))?;
        let (expected, change) = self.values(&name)?;
        if self.fields.next() != self.fields.end.byte() {
            return Err(self.error_of(&name, &format!("extra input: {}", c_text(self.fields.rest))));
        }
        Ok(Edit { name, expected, change, deref: self.meaning.deref })
    }

    /// Git lets these two talk about the named ref only.
    fn refuse_to_follow(&self) -> Result<(), GrammarError> {
        let unfollowed = matches!(self.verb, Verb::SymrefDelete | Verb::SymrefVerify);
        match (unfollowed, self.meaning.deref) {
            (true, Deref::Follow) => Err(self.error("cannot operate with deref mode")),
            _ => Ok(()),
        }
    }

    fn values(&mut self, name: &RefName) -> Result<(Expected, Change), GrammarError> {
        match self.verb {
            Verb::Create => Ok((Expected::Absent, Change::Set(self.created(name)?.into()))),
            Verb::Update => self.update(name),
            Verb::Delete => Ok((self.deleted(name)?, Change::Delete)),
            Verb::SymrefCreate => Ok((Expected::Absent, Change::Set(self.new_target(name)?))),
            Verb::SymrefUpdate => self.symref_update(name),
            Verb::SymrefDelete => Ok((self.old_target()?.unwrap_or(Expected::Any), Change::Delete)),
            Verb::SymrefVerify => {
                Ok((self.old_target()?.unwrap_or(Expected::Absent), Change::Verify))
            }
            _ => Ok((self.verified(name)?, Change::Verify)),
        }
    }

    fn created(&mut self, name: &RefName) -> Result<ObjectId, GrammarError> {
        match self.id(name, Side::New)? {
            None => Err(self.error_of(name, "missing <new-oid>")),
            Some(id) if id.is_zero() => Err(self.error_of(name, "zero <new-oid>")),
            Some(id) => Ok(id),
        }
    }

    /// A zero new value removes the ref.
    fn update(&mut self, name: &RefName) -> Result<(Expected, Change), GrammarError> {
        let new = self.id(name, Side::New)?;
        let new = new.ok_or_else(|| self.error_of(name, "missing <new-oid>"))?;
        let old = self.id(name, Side::Old)?;
        let change = if new.is_zero() { Change::Delete } else { Change::Set(new.into()) };
        Ok((old.map_or(Expected::Any, |old| Expected::Value(old.into())), change))
    }

    fn deleted(&mut self, name: &RefName) -> Result<Expected, GrammarError> {
        match self.id(name, Side::Old)? {
            None => Ok(Expected::Any),
            Some(id) if id.is_zero() => Err(self.error_of(name, "zero <old-oid>")),
            Some(id) => Ok(Expected::Value(id.into())),
        }
    }

    /// Verifying no value verifies that the ref is absent.
    fn verified(&mut self, name: &RefName) -> Result<Expected, GrammarError> {
        let old = self.id(name, Side::Old)?;
        Ok(old.map_or(Expected::Absent, |old| Expected::Value(old.into())))
    }

    fn symref_update(&mut self, name: &RefName) -> Result<(Expected, Change), GrammarError> {
        let change = Change::Set(self.new_target(name)?);
        let Some(kind) = self.fields.next_argument()? else {
            return Ok((Expected::Any, change));
        };
        let old = self.fields.next_argument()?;
        let old = old.ok_or_else(|| self.error_of(name, "expected old value"))?;
        let old = match kind.as_slice() {
            b"oid" => self.old_object(name, &old)?,
            b"ref" => self.old_symbolic(name, &old)?,
            other => {
                let text = format!("invalid arg '{}' for old value", c_text(other));
                return Err(self.error_of(name, &text));
            }
        };
        Ok((Expected::Value(old), change))
    }

    fn old_object(&self, name: &RefName, hex: &[u8]) -> Result<Target, GrammarError> {
        let id = self.parse_id(hex).map(Target::Object);
        id.ok_or_else(|| GrammarError {
            hint: Some(FULL_IDS),
            ..self.error_of(name, &format!("invalid oid: {}", c_text(hex)))
        })
    }

    fn old_symbolic(&self, name: &RefName, target: &[u8]) -> Result<Target, GrammarError> {
        let invalid = |_| self.error_of(name, &format!("invalid ref: {}", c_text(target)));
        RefName::new(target).map(Target::Symbolic).map_err(invalid)
    }

    fn new_target(&mut self, name: &RefName) -> Result<Target, GrammarError> {
        let target = self.next_name()?.map(Target::Symbolic);
        target.ok_or_else(|| self.error_of(name, "missing <new-target>"))
    }

    fn old_target(&mut self) -> Result<Option<Expected>, GrammarError> {
        Ok(self.next_name()?.map(|target| Expected::Value(target.into())))
    }

    fn next_name(&mut self) -> Result<Option<RefName>, GrammarError> {
        match self.fields.next_argument()? {
            Some(name) => self.name(name),
            None => Ok(None),
        }
    }

    /// The name an argument spells; an empty one is none.
    fn name(&self, argument: Vec<u8>) -> Result<Option<RefName>, GrammarError> {
        if argument.is_empty() {
            return Ok(None);
        }
        match RefName::new(argument) {
            Ok(name) => Ok(Some(name)),
            Err(error) => Err(GrammarError {
                text: format!("invalid ref format: {}", c_text(error.name())),
                hint: Some("a full name is needed, such as refs/heads/main or HEAD"),
            }),
        }
    }

    /// The next argument as an object id; `None` if it is missing.
    fn id(&mut self, name: &RefName, side: Side) -> Result<Option<ObjectId>, GrammarError> {
        if self.fields.rest.is_empty() {
            return Err(self.unexpected_end(name, side));
        }
        match self.fields.end {
            End::Newline => self.id_in_line(name, side),
            End::Nul => self.id_before_nul(name, side),
        }
    }

    /// An empty argument means the zero id.
    fn id_in_line(&mut self, name: &RefName, side: Side) -> Result<Option<ObjectId>, GrammarError> {
        if self.fields.is_at_end() {
            return Ok(None);
        }
        if self.fields.next() != b' ' {
            let found = c_text(self.fields.rest);
            return Err(self.error_of(name, &format!("expected SP but got: {found}")));
        }
        self.fields.skip();
        let argument = self.fields.argument()?;
        if argument.is_empty() {
            return Ok(Some(self.zero()));
        }
        self.required_id(name, side, &argument).map(Some)
    }

    /// An empty argument means a missing one, except that `update` takes it for the zero id.
    fn id_before_nul(
        &mut self,
        name: &RefName,
        side: Side,
    ) -> Result<Option<ObjectId>, GrammarError> {
        // The argument before ended at a NUL, or at the end of the input.
        self.fields.skip();
        if self.fields.rest.is_empty() {
            return Err(self.unexpected_end(name, side));
        }
        let argument = self.fields.argument()?;
        match (argument.is_empty(), self.verb, side) {
            (false, ..) => self.required_id(name, side, &argument).map(Some),
            (true, Verb::Update, Side::New) => {
                let warning = self.error_of(name, "missing <new-oid>, treating as zero");
                (self.warn)(warning.text);
                Ok(Some(self.zero()))
            }
            (true, ..) => Ok(None),
        }
    }

    fn required_id(
        &self,
        name: &RefName,
        side: Side,
        hex: &[u8],
    ) -> Result<ObjectId, GrammarError> {
        self.parse_id(hex).ok_or_else(|| GrammarError {
            hint: Some(FULL_IDS),
            ..self.error_of(name, &format!("invalid {}: {}", side.name(), c_text(hex)))
        })
    }

    fn parse_id(&self, hex: &[u8]) -> Option<ObjectId> {
        let id = ObjectId::from_hex(hex).ok();
        id.filter(|id| id.format() == self.meaning.objects)
    }

    fn zero(&self) -> ObjectId {
        ObjectId::zero(self.meaning.objects)
    }

    fn unexpected_end(&self, name: &RefName, side: Side) -> GrammarError {
        let side = side.name();
        self.error_of(name, &format!("unexpected end of input when reading {side}"))
    }

    fn error(&self, problem: &str) -> GrammarError {
        GrammarError::new(format!("{}: {problem}", self.verb.name()))
    }

    fn error_of(&self, name: &RefName, problem: &str) -> GrammarError {
        GrammarError::new(format!("{} {}: {problem}", self.verb.name(), c_text(name.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn parse_as(
        input: &str,
        end: End,
        deref: Deref,
    ) -> (Vec<Result<Command, String>>, Vec<String>) {
        let input = input.replace("<A>", A).replace("<B>", B).replace("<0>", ZERO);
        let mut script = Script::new(input.as_bytes(), end);
        let (mut commands, mut warnings) = (Vec::new(), Vec::new());
        let meaning = Meaning { objects: ObjectFormat::Sha1, deref };
        while let Some(command) = script.next().unwrap() {
            let parsed = command.and_then(|c| c.parse(meaning, &mut |text| warnings.push(text)));
            let failed = parsed.is_err();
            commands.push(parsed.map_err(|error| error.text));
            if failed {
                break;
            }
        }
        (commands, warnings)
    }

    fn lines(input: &str) -> Vec<Result<Command, String>> {
        parse_as(input, End::Newline, Deref::Follow).0
    }

    fn edits(input: &str, end: End) -> Vec<Edit> {
        let edit = |command| match command {
            Ok(Command::Edit(edit)) => edit,
            other => panic!("{other:?}"),
        };
        parse_as(input, end, Deref::NoFollow).0.into_iter().map(edit).collect()
    }

    fn error(input: &str) -> String {
        lines(input).pop().unwrap().unwrap_err()
    }

    fn x() -> RefName {
        RefName::new("refs/heads/x").unwrap()
    }

    fn id(hex: &str) -> ObjectId {
        hex.parse().unwrap()
    }

    #[test]
    fn each_command_means_one_edit() {
        let y = || RefName::new("refs/heads/y").unwrap();
        let z = || RefName::new("refs/heads/z").unwrap();
        let table = [
            ("create refs/heads/x <A>", Edit::create(x(), id(A))),
            ("update refs/heads/x <A>", Edit::set(x(), id(A))),
            ("update refs/heads/x <A> <B>", Edit::update(x(), id(A), id(B))),
            ("update refs/heads/x <A> <0>", Edit::update(x(), id(A), id(ZERO))),
            ("update refs/heads/x <A> ", Edit::update(x(), id(A), id(ZERO))),
            ("update refs/heads/x <0> <B>", Edit::delete_if(x(), id(B))),
            ("update refs/heads/x <0>", Edit::delete(x())),
            ("delete refs/heads/x", Edit::delete(x())),
            ("delete refs/heads/x <A>", Edit::delete_if(x(), id(A))),
            ("verify refs/heads/x", Edit::verify(x(), Expected::Absent)),
            ("verify refs/heads/x <A>", Edit::verify(x(), Expected::Value(id(A).into()))),
            ("symref-create refs/heads/x refs/heads/y", Edit::create(x(), y())),
            ("symref-update refs/heads/x refs/heads/y", Edit::set(x(), y())),
            (
                "symref-update refs/heads/x refs/heads/y ref refs/heads/z",
                Edit::update(x(), y(), z()),
            ),
            ("symref-update refs/heads/x refs/heads/y oid <A>", Edit::update(x(), y(), id(A))),
            ("symref-delete refs/heads/x", Edit::delete(x())),
            ("symref-delete refs/heads/x refs/heads/y", Edit::delete_if(x(), y())),
            ("symref-verify refs/heads/x", Edit::verify(x(), Expected::Absent)),
            (
                "symref-verify refs/heads/x refs/heads/y",
                Edit::verify(x(), Expected::Value(y().into())),
            ),
        ];
        for (line, edit) in table {
            assert_eq!(edits(&format!("{line}\n"), End::Newline), [edit.no_deref()], "{line}");
        }
    }

    #[test]
    fn words_end_at_nul_under_z_and_may_hold_anything_else() {
        let input = "create refs/heads/x\0<A>\0update refs/heads/x\0<A>\0\0verify refs/heads/x\0\0\
                     symref-update refs/heads/x\0HEAD\0\0\0\
                     symref-update refs/heads/x\0HEAD\0oid\0<A>\0\
                     delete refs/heads/\"q\"\0<B>\0symref-verify refs/heads/x\0\0";
        let quoted = RefName::new("refs/heads/\"q\"").unwrap();
        let expected = [
            Edit::create(x(), id(A)),
            Edit::set(x(), id(A)),
            Edit::verify(x(), Expected::Absent),
            Edit::set(x(), RefName::head()),
            Edit::update(x(), RefName::head(), id(A)),
            Edit::delete_if(quoted, id(B)),
            Edit::verify(x(), Expected::Absent),
        ];
        assert_eq!(edits(input, End::Nul), expected.map(Edit::no_deref));
    }

    #[test]
    fn an_empty_new_value_under_z_is_zero_with_a_warning() {
        let (commands, warnings) =
            parse_as("update refs/heads/x\0\0<A>\0", End::Nul, Deref::Follow);
        assert_eq!(commands, [Ok(Command::Edit(Edit::delete_if(x(), id(A))))]);
        assert_eq!(warnings, ["update refs/heads/x: missing <new-oid>, treating as zero"]);
    }

    #[test]
    fn quoted_arguments_are_bytes() {
        let odd = RefName::new(b"refs/heads/\xff\"").unwrap();
        let input = "create \"refs/heads/\\377\\\"\" \"<A>\"\n";
        assert_eq!(edits(input, End::Newline), [Edit::create(odd, id(A)).no_deref()]);
    }

    #[test]
    fn the_commands_without_arguments_stand_alone() {
        let commands = lines("start\noption no-deref\nprepare\ncommit\nabort\n");
        let expected =
            [Command::Start, Command::NoDeref, Command::Prepare, Command::Commit, Command::Abort];
        assert_eq!(commands, expected.map(Ok));
    }

    // The differential test asks git itself; these are the ones without a repository.
    // Breaks: `lines()`, which takes an input that was cut short for a whole one.
    #[test]
    fn an_input_cut_short_is_refused() {
        assert_eq!(error("commit"), "unknown command: commit");
        assert_eq!(error("create refs/heads/x <A>"), "create refs/heads/x: extra input: ");
        let end = "unexpected end of input when reading";
        assert_eq!(error("create refs/heads/x"), format!("create refs/heads/x: {end} <new-oid>"));
        let cut = parse_as("update refs/heads/x\0<A>\0", End::Nul, Deref::Follow).0;
        assert_eq!(cut, [Err(format!("update refs/heads/x: {end} <old-oid>"))]);
    }

    #[test]
    fn ids_are_whole_and_of_the_repository() {
        for bad in ["11", "HEAD", "refs/heads/x", &"1".repeat(64), &"g".repeat(40)] {
            let text = format!("create refs/heads/x: invalid <new-oid>: {bad}");
            assert_eq!(error(&format!("create refs/heads/x {bad}\n")), text);
        }
        let text = "symref-update refs/heads/x: invalid oid: 11";
        assert_eq!(error("symref-update refs/heads/x HEAD oid 11\n"), text);
    }

    #[test]
    fn nothing_drives_the_terminal_of_who_reads_the_error() {
        assert_eq!(error("\x1b[2J\n"), "unknown command: \\x1b[2J");
    }
}
