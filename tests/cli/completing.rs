//! Completion by Tab in interactive shells.

use std::os::unix::fs::PermissionsExt as _;

use crate::support::TestEnv;
use crate::support::terminal::Terminal;
use crate::support::test_env::dlock;

/// The settings of an interactive shell. [`Terminal`] waits for the prompt that they set.
struct Shell {
    name: &'static str,
    /// The command line that starts it; `RC` is replaced by the file with the settings.
    words: &'static [&'static str],
    /// The name of the file with the settings.
    rc: &'static str,
    /// Commands that load the completions and define some for the program `tool`.
    settings: &'static str,
    generated: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell {
        name: "bash",
        words: &["bash", "--noprofile", "--rcfile", "RC", "-i"],
        rc: "bashrc",
        settings: "bind 'set enable-bracketed-paste off'\nPS1='@prompt@ '\nexport PATH=\"BIN:$PATH\" DLOCK_ENDPOINT=LOCKS\n\
                   source /usr/share/bash-completion/bash_completion\nsource GENERATED\n\
                   complete -W '--alpha --beta' tool\n",
        generated: "dlock.bash",
    },
    Shell {
        name: "zsh",
        words: &["env", "ZDOTDIR=ROOT", "zsh", "-d", "-i"],
        rc: ".zshrc",
        settings: "unset zle_bracketed_paste\nPS1='@prompt@ '\nexport PATH=\"BIN:$PATH\" DLOCK_ENDPOINT=LOCKS\n\
                   autoload -U compinit; compinit -D -u\nsource GENERATED\n\
                   _tool() { _arguments --alpha --beta }\ncompdef _tool tool\n",
        generated: "_dlock",
    },
    Shell {
        name: "fish",
        words: &["fish", "--no-config", "-i", "-C", "source RC"],
        rc: "config.fish",
        settings: "function fish_prompt; echo '@prompt@ '; end\nset fish_greeting\n\
                   set -x PATH BIN $PATH; set -x DLOCK_ENDPOINT LOCKS\nsource GENERATED\n\
                   complete -c tool -l alpha; complete -c tool -l beta\n",
        generated: "dlock.fish",
    },
];

/// Starts an interactive shell with the completions of dlock and a program `tool` that prints its arguments.
fn interactive(env: &TestEnv, shell: &Shell) -> Terminal {
    let folder = env.path("bin");
    std::fs::create_dir_all(&folder).expect("made");
    std::os::unix::fs::symlink(dlock(), folder.join("dlock")).expect("linked");
    let tool = env.write("bin/tool", "#!/bin/sh\necho \"tool got <$*>\"\n");
    std::fs::set_permissions(tool, std::fs::Permissions::from_mode(0o755)).expect("a program");
    let generated = format!("{}/completions/{}", env!("CARGO_MANIFEST_DIR"), shell.generated);
    let settings = shell.settings.replace("BIN", &folder.display().to_string());
    let settings =
        settings.replace("LOCKS", &env.locks().display().to_string()).replace("GENERATED", &generated);
    let rc = env.write(shell.rc, &settings).display().to_string();
    let root = env.root().display().to_string();
    let words: Vec<String> =
        shell.words.iter().map(|word| word.replace("RC", &rc).replace("ROOT", &root)).collect();
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut terminal = Terminal::start(env, &words[0], &arguments);
    terminal.expect_prompt();
    terminal
}

fn completes(shell: &Shell) {
    let env = TestEnv::new();
    let holder = env.held(&["--name", "deploy-prod", "--label", "mine"]);
    let mut terminal = interactive(&env, shell);
    // The name of a lock, an option, and a value of an option.
    terminal.press("dlock status dep\t--wi\t--back\tfil\t\n");
    terminal.expect("(file /");
    terminal.expect(holder.claim());
    terminal.expect_prompt();
    // An option of the command that dlock would run.
    terminal.press("dlock run --name=x -- too\t--al\t\n");
    terminal.expect("tool got <--alpha>");
    terminal.expect_prompt();
    // The claim is the only candidate.
    terminal.press("dlock break deploy-prod --yes --claim \t\n");
    terminal.expect_prompt();
    let ended = holder.running.finish();
    assert_eq!(ended.code(), Some(76), "{}: {ended:?}", shell.name);
}

#[test]
fn bash_completes_names_options_claims_and_the_commands_own() {
    completes(&SHELLS[0]);
}

#[test]
fn zsh_completes_names_options_claims_and_the_commands_own() {
    completes(&SHELLS[1]);
}

#[test]
fn fish_completes_names_options_claims_and_the_commands_own() {
    completes(&SHELLS[2]);
}

/// The answers of `dlock __complete`, which the shells call.
#[test]
fn unavailable_completion_is_empty_and_no_error() {
    let env = TestEnv::new();
    let answer = |words: &[&str]| {
        // The default directory of this host may contain locks of other users.
        let mut command = env.dlock([&["__complete"], words].concat());
        env.finish(command.env("DLOCK_ENDPOINT", env.locks())).silently(0).text()
    };
    assert_eq!(answer(&["run", "--name", ""]), "words\n");
    assert_eq!(answer(&["status", "--endpoint", "redis://127.0.0.1:1", ""]), "words\n");
    assert_eq!(answer(&["run", "--profile", ""]), "words\n");
    assert_eq!(answer(&["run", "--config", ""]), "files\n");
    assert_eq!(answer(&["run", "--name", "x", "make", ""]), "command 4\n");
    assert!(!env.path("locks/x").exists());
}
