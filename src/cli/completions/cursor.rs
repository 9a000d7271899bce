//! What can stand at the cursor.

use clap::{Arg, Command};

use crate::cli::args::Subcommand;

/// What can stand at the cursor.
#[derive(Debug)]
pub(super) enum Completion {
    /// A subcommand.
    Subcommand,
    /// An option of this subcommand.
    Option(Command),
    /// A value of this option or operand.
    Value {
        /// Which one.
        arg: Arg,
        /// What stands before the value in the same word: `--backend=`, or nothing.
        lead: String,
    },
    /// The command to run, which begins at that word, or a word of it.
    Command(usize),
    /// Nothing that is known.
    Nothing,
}

/// What a command line was found to say.
#[derive(Debug)]
pub(super) struct CursorContext {
    /// What can stand at the cursor.
    pub(super) expected: Completion,
    /// The options before it that say where the lock service is, with their values.
    pub(super) connection: Vec<String>,
    /// The lock that was named before it, if one was.
    pub(super) lock: Option<String>,
}

/// Finds it out of `words`, which are those behind `dlock`; the cursor is in the last one.
pub(super) fn find(words: &[String]) -> CursorContext {
    let mut found = CursorContext { expected: Completion::Nothing, connection: Vec::new(), lock: None };
    let Some((current, before)) = words.split_last() else { return found };
    let Some((first, rest)) = before.split_first() else {
        found.expected = Completion::Subcommand;
        return found;
    };
    let Some(subcommand) = Subcommand::named(first) else { return found };
    let mut command = subcommand.command();
    command.build();
    found.expected = found.read(&command, rest, current);
    if let Completion::Option(_) = found.expected {
        found.expected = Completion::Option(command);
    }
    found
}

impl CursorContext {
    /// Reads the words behind the subcommand, as clap will.
    fn read(&mut self, command: &Command, before: &[String], current: &str) -> Completion {
        let runs = command.get_positionals().any(Arg::is_trailing_var_arg_set);
        let mut expects: Option<&Arg> = None;
        let mut operands = false;
        let mut seen = 0;
        for (n, word) in before.iter().enumerate() {
            if let Some(arg) = expects.take() {
                self.note(arg, word);
            } else if !operands && word == "--" {
                operands = true;
            } else if !operands && word != "-" && word.starts_with('-') {
                match word.split_once('=').filter(|_| word.starts_with("--")) {
                    Some((option, value)) => {
                        if let Some(arg) = expecting(command, option) {
                            self.note(arg, value);
                        }
                    }
                    None => expects = expecting(command, word),
                }
            } else if runs {
                // `dlock` and the subcommand come before.
                return Completion::Command(n + 2);
            } else {
                self.lock.get_or_insert_with(|| word.clone());
                seen += 1;
            }
        }
        if let Some(arg) = expects {
            return Completion::Value { arg: arg.clone(), lead: String::new() };
        }
        if !operands && current.starts_with('-') {
            return match current.split_once('=').filter(|_| current.starts_with("--")) {
                Some((option, _)) => match expecting(command, option) {
                    Some(arg) => Completion::Value { arg: arg.clone(), lead: format!("{option}=") },
                    None => Completion::Nothing,
                },
                None => Completion::Option(Command::default()),
            };
        }
        if runs {
            return Completion::Command(before.len() + 2);
        }
        let operand = command.get_positionals().nth(seen).or_else(|| command.get_positionals().last());
        let takes_more = |arg: &Arg| seen == 0 || arg.get_num_args().is_some_and(|n| n.max_values() > 1);
        match operand.filter(|arg| takes_more(arg)) {
            Some(arg) => Completion::Value { arg: arg.clone(), lead: String::new() },
            None => Completion::Nothing,
        }
    }

    /// Remembers what is needed to ask the service.
    fn note(&mut self, arg: &Arg, value: &str) {
        let id = arg.get_id().as_str();
        if matches!(id, "name" | "named") {
            self.lock.get_or_insert_with(|| value.to_owned());
        } else if arg.get_help_heading() == Some("Connection")
            && let Some(long) = arg.get_long()
        {
            self.connection.extend([format!("--{long}"), value.to_owned()]);
        }
    }
}

/// The option that expects the next word as its value, or what is behind its `=`; `word` is an option, or several short ones.
fn expecting<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let takes_value = |arg: &&Arg| arg.get_action().takes_values();
    if let Some(long) = word.strip_prefix("--") {
        return command.get_opts().find(|arg| arg.get_long() == Some(long)).filter(takes_value);
    }
    let mut letters = word.chars().skip(1);
    while let Some(letter) = letters.next() {
        let option = command.get_opts().find(|arg| arg.get_short() == Some(letter));
        if option.is_some_and(|arg| takes_value(&arg)) {
            // What follows in the same word is the value.
            return option.filter(|_| letters.next().is_none());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(words: &[&str]) -> (String, CursorContext) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let found = find(&words);
        let place = match &found.expected {
            Completion::Subcommand => "subcommand".to_owned(),
            Completion::Option(_) => "option".to_owned(),
            Completion::Value { arg, lead } => format!("{lead}<{}>", arg.get_id()),
            Completion::Command(n) => format!("command {n}"),
            Completion::Nothing => String::new(),
        };
        (place, found)
    }

    #[test]
    fn the_cursor_is_where_clap_would_read_it() {
        for (words, expected) in [
            (&["ru"][..], "subcommand"),
            (&["run", "--na"], "option"),
            (&["run", "--name", ""], "<name>"),
            (&["run", "--name=x", "--backend=e"], "--backend=<backend>"),
            (&["run", "-n", ""], "command 3"),
            (&["run", "-nw", ""], "<wait>"),
            (&["run", "-w5", "--name", "x", "make", "-"], "command 5"),
            (&["run", "--name", "x", "--", ""], "command 5"),
            (&["run", "--name", "x", "--", "-"], "command 5"),
            (&["run", "-c", ""], "<shell_command>"),
            (&["status", ""], "<names>"),
            (&["status", "a", "b", ""], "<names>"),
            (&["watch", ""], "<name>"),
            (&["watch", "a", ""], ""),
            (&["break", "a", "--claim", ""], "<claim>"),
            (&["man", ""], "<page>"),
            (&["nonsense", ""], ""),
        ] {
            assert_eq!(place(words).0, expected, "{words:?}");
        }
    }

    #[test]
    fn what_was_said_before_is_used() {
        let words = ["break", "--endpoint=redis://a", "-y", "--prefix", "p", "deploy", "--claim", ""];
        let found = place(&words).1;
        assert_eq!(found.connection, ["--endpoint", "redis://a", "--prefix", "p"]);
        assert_eq!(found.lock.as_deref(), Some("deploy"));
    }
}
