//! The two pictures of README.md: what the program prints on a terminal, in SVG.
//!
//! `DLOCK_REGENERATE=1 cargo test --test recipes pictures` draws a picture anew if it shows something else than the program prints.

use std::fmt::Write as _;
use std::path::Path;

use crate::page::RecipeEnv;
use crate::support::Running;
use crate::support::terminal::Terminal;

/// Wide enough for the names of any host, user and directory.
const COLUMNS: u16 = 300;
/// The size of a character, and the distance from the edge.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 20.0;
const EDGE: f32 = 14.0;

/// Runs the words behind the first, on a host of that name where this user may change names.
const ON_HOST: &str = r#"
name='echo "$0" >/proc/sys/kernel/hostname; exec "$@"'
unshare --uts sh -c "$name" test true 2>/dev/null && exec unshare --uts sh -c "$name" "$@"
shift; exec "$@""#;

/// A character of the screen, and how it is written: `0` as usual, `1` bold, `2` faint.
type Cell = (char, char);

/// The rows of a terminal that got these bytes.
fn screen(bytes: &str) -> Vec<Vec<Cell>> {
    let (mut rows, mut column, mut style) = (vec![Vec::new()], 0, '0');
    let mut rest = bytes.chars();
    while let Some(character) = rest.next() {
        let row = rows.last_mut().expect("a row");
        match character {
            '\r' => column = 0,
            '\n' => rows.push(Vec::new()),
            '\x1b' => {
                let sequence: String = rest.by_ref().take_while(|c| !"Km".contains(*c)).collect();
                match sequence.as_str() {
                    "[" => row.truncate(column),
                    "[0" | "[1" | "[2" => style = sequence.chars().nth(1).expect("a digit"),
                    _ => panic!("{sequence:?} cannot be drawn"),
                }
            }
            _ => {
                row.truncate(column);
                row.push((character, style));
                column += 1;
            }
        }
    }
    rows
}

/// The picture of a terminal on which `command` was typed and printed `rows`.
#[expect(clippy::cast_precision_loss, reason = "a picture has few rows and columns")]
fn svg(command: &str, rows: &[Vec<Cell>]) -> String {
    let typed = [("$ ", '2'), (command, '1')];
    let typed = typed.iter().flat_map(|(text, style)| text.chars().map(|c| (c, *style))).collect();
    let rows: Vec<&Vec<Cell>> = [&typed].into_iter().chain(rows).filter(|row| !row.is_empty()).collect();
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or_default() as f32;
    let (width, height) = (columns * WIDTH + 2.0 * EDGE, rows.len() as f32 * HEIGHT + 2.0 * EDGE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\">\n\
         <title>{command}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#161b22\"/>\n\
         <g fill=\"#e6edf3\" font-family=\"ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace\" \
         font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for (n, row) in rows.iter().enumerate() {
        let (y, length) = (EDGE + HEIGHT * (n as f32 + 0.75), row.len() as f32 * WIDTH);
        write!(out, "<text x=\"{EDGE}\" y=\"{y}\" textLength=\"{length:.0}\">").expect("a text");
        for part in row.chunk_by(|a, b| a.1 == b.1) {
            let text: String = part.iter().map(|cell| cell.0).collect();
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let way = match part[0].1 {
                '1' => " font-weight=\"bold\"",
                '2' => " fill=\"#8b949e\"",
                _ => "",
            };
            write!(out, "<tspan{way}>{text}</tspan>").expect("a text");
        }
        out.push_str("</text>\n");
    }
    out + "</g>\n</svg>\n"
}

/// Returns the part of a picture that is the same on every host: the words of each row, without names of hosts, numbers and
/// times.
fn said(picture: &str) -> Vec<String> {
    let varies = |word: &str| {
        let word = word.trim_start_matches("&lt;");
        word.contains('@') || word.bytes().all(|byte| b"0123456789abcdefhms:-.TZ".contains(&byte))
    };
    let words = |row: &str| -> String {
        let text = row.split('<').skip(1).filter_map(|part| part.split_once('>')).map(|(_, text)| text);
        let text = text.collect::<String>();
        text.split_whitespace()
            .map(|word| if varies(word) { "#" } else { word })
            .collect::<Vec<_>>()
            .join(" ")
    };
    picture.lines().filter(|line| line.starts_with("<text")).map(words).collect()
}

/// Returns whether `printed` has the rows of a picture, in order and up to its last one. `watch` may print a state in between, or skip it.
fn shows(picture: &[String], printed: &[String]) -> bool {
    let mut rows = printed.iter();
    picture.last().is_some_and(|last| printed.last() == Some(last))
        && picture.iter().all(|row| rows.any(|printed| printed == row))
}

/// The picture in the file `name` shows what `command` printed: `terminal`.
fn compare(place: &RecipeEnv, name: &str, command: &str, terminal: &Terminal) {
    // Where the locks are, and that this is no place for them, is of this machine.
    let printed = terminal.shown().replace(&place.env.locks().display().to_string(), "/srv/locks");
    let drawn = svg(command, &screen(&printed.replace(", where old files are removed", "")));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github").join(name);
    let (picture, printed) = (|| said(&std::fs::read_to_string(&file).unwrap_or_default()), said(&drawn));
    if std::env::var_os("DLOCK_REGENERATE").is_some() && !shows(&picture(), &printed) {
        std::fs::write(&file, &drawn).expect("written");
    }
    let picture = picture();
    assert!(
        shows(&picture, &printed),
        ".github/{name} is old; see the top of {}: {picture:?}, {printed:?}",
        file!()
    );
}

/// Words that run `dlock` with the locks of `place`, in its directory.
fn words<'a>(host: &'a str, command: &'a str) -> Vec<&'a str> {
    ["-c", ON_HOST, "sh", host].into_iter().chain(command.split(' ')).collect()
}

fn terminal(place: &RecipeEnv, host: &str, command: &str) -> Terminal {
    let locks = place.env.locks().display().to_string();
    let script = format!(
        "cd {}; stty columns {COLUMNS} -echo; DLOCK_ENDPOINT={locks} PATH=bin:$PATH; export DLOCK_ENDPOINT PATH\n{ON_HOST}",
        place.env.root().display()
    );
    let mut words = words(host, command);
    words[1] = &script;
    Terminal::start(&place.env, "sh", &words)
}

fn run(place: &RecipeEnv, host: &str, label: &str) -> Running {
    let line = format!("dlock run -q --name deploy --label {label} -- ./deploy.sh");
    let mut command = place.command("sh");
    place.env.start(command.args(words(host, &line)).current_dir(place.env.root()))
}

#[test]
fn pictures_match_the_output_of_the_program() {
    let place = RecipeEnv::new();
    let gate = place.gated("deploy.sh");
    let first = run(&place, "host7", "v1.2");
    place.await_up("deploy.sh", 1);
    let second = run(&place, "host3", "v1.3");
    place.env.await_waiters("deploy", 1);

    let watching = "dlock watch deploy";
    let mut watch = terminal(&place, "host3", watching);
    watch.expect(": held, 1 waiting");
    watch.expect("v1.3");
    let waiting = "dlock run --name deploy --label v1.4 -- ./deploy.sh";
    let mut third = terminal(&place, "host4", waiting);
    watch.expect(": held, 2 waiting");
    watch.expect("v1.4\r\n");
    third.expect("· 00:02\x1b[K");
    compare(&place, "wait.svg", waiting, &third);

    gate.write("0");
    first.finish().silently(0);
    watch.expect(": held, 1 waiting");
    watch.expect("v1.4\r\n");
    compare(&place, "watch.svg", watching, &watch);

    watch.ctrl_c();
    place.await_up("deploy.sh", 2);
    gate.write("0");
    second.finish().silently(0);
    place.await_up("deploy.sh", 3);
    gate.write("0");
    place.assert_over("deploy");
}
