//! README.md: the block that shows dlock at work is the program's output, except for names, numbers and times.

use std::process::Command;

use crate::page::RecipeEnv;
use crate::support::Running;
use crate::support::terminal::Terminal;

const README: &str = include_str!("../../README.md");

/// Returns the lines below `command` in the block.
fn shown(command: &str) -> Vec<&'static str> {
    let (_, block) = README.split_once("```console\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let lines = block.lines().skip_while(|line| *line != format!("$ {command}")).skip(1);
    let found: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    assert!(!found.is_empty(), "{command}");
    found
}

/// Returns the columns of a row that are the same on every host: state, mode, command and label.
fn columns(row: &str) -> Vec<&str> {
    let words: Vec<&str> = row.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    [1, 2, 6, 7].map(|at| *words.get(at).unwrap_or_else(|| panic!("no column {at} in {row}"))).to_vec()
}

#[test]
fn readme_matches_the_output_of_the_program() {
    let place = RecipeEnv::new();
    place.endless("deploy.sh");
    let root = place.env.root().to_owned();
    let run = |label: &str| -> Running {
        let mut command: Command = place.command("dlock");
        command.args(["run", "-q", "--name", "deploy", "--label", label, "--", "./deploy.sh"]);
        place.env.start(command.current_dir(&root))
    };
    let first = run("v1.2");
    place.await_up("deploy.sh", 1);
    let second = run("v1.3");
    place.env.await_waiters("deploy", 1);
    let mut terminal = Terminal::bash(&place.env);
    // Wide enough for the names of any host and user.
    terminal.resize(24, 300);
    terminal.type_line(&format!("cd {}", root.display()));
    terminal.expect_prompt();
    terminal.type_line("run --name deploy --label v1.4 -- ./deploy.sh");
    let line = shown("dlock run --name deploy -- ./deploy.sh")[0];
    let (place_in_queue, rest) = line.split_once("held by ").expect("a holder");
    let (_, rest) = rest.split_once("pid 4121 ").expect("its process");
    let (command, times) = rest.split_once(" for ").expect("a time");
    assert_eq!(times, "3m12s · 00:41");
    terminal.expect(place_in_queue);
    terminal.expect("held by ");
    terminal.expect(&format!(" pid {} {command} for ", first.pid()));
    terminal.expect(" · 00:0");

    let table = shown("dlock status deploy");
    let mut status = place.command("dlock");
    let printed = place.env.finish(status.args(["status", "deploy"])).silently(0).text();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines.len(), table.len(), "{printed}");
    let title = |line: &str| line.split(" (").next().map(str::to_owned);
    assert_eq!(title(lines[0]), title(table[0]));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(lines[1]), words(table[1]));
    for (line, row) in lines.iter().zip(&table).skip(2) {
        assert_eq!(columns(line), columns(row), "{printed}");
    }
    terminal.ctrl_c();
    terminal.await_status(130);
    for running in [second, first] {
        running.signal(rustix::process::Signal::TERM);
        running.finish();
    }
    drop(terminal);
    place.assert_over("deploy");
}
