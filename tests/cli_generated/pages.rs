//! The manual pages.
//!
//! The options of a page are those of the command line. The rest is Markdown: of a subcommand or a topic in
//! `src/cli/manual/text`, of a lock service in its own directory. `roff.rs` names the supported part of Markdown.
//! `tests/recipes` runs each recipe.

use std::fmt::Write as _;

use clap::{Args as _, Command};
use clap_mangen::Man;
use dlock::cli::args::{self, CommonArgs};
use dlock::cli::page::Page;

use super::folder;
use super::roff::{self, INFALLIBLE};

/// The date of the last change of the pages.
const DATE: &str = "2026-11-27";

/// The directories of services that have another name than the service.
const DIRECTORIES: [(&str, &str); 3] =
    [("zk", "zookeeper"), ("mysql", "sql/mysql"), ("postgres", "sql/postgres")];

/// Returns all pages: file name and text.
pub(super) fn files() -> Vec<(String, String)> {
    Page::all().map(|page| (page.file_name(), roff(page))).collect()
}

/// Returns the Markdown of a page.
fn text(page: Page) -> String {
    let own = format!("src/cli/manual/text/{}.md", page.name);
    let directory =
        DIRECTORIES.iter().find(|(name, _)| *name == page.name).map_or(page.name, |(_, path)| path);
    let of_service = format!("src/backend/{directory}/manual.md");
    let is_there = folder(&own).exists();
    std::fs::read_to_string(folder(if is_there { &own } else { &of_service })).expect("a source of the page")
}

/// Returns a page in roff.
fn roff(page: Page) -> String {
    let mut out = String::new();
    let (title, section, text) = (page.title(), page.section, text(page));
    let version = env!("CARGO_PKG_VERSION");
    let heading = title.to_uppercase();
    writeln!(out, ".TH \"{heading}\" {section} \"{DATE}\" \"dlock {version}\" \"dlock\"").expect(INFALLIBLE);
    if page.is_of_command() {
        command_page(&mut out, &title, page, &text);
    } else {
        whole_page(&mut out, &title, &text);
    }
    out
}

fn name(out: &mut String, title: &str, about: &str) {
    write!(out, ".SH \"NAME\"\n{} \\- {}\n", roff::escape(title), roff::escape(about)).expect(INFALLIBLE);
}

/// Writes the page of a command: usage and options by clap, the description before the options, and the other sections after
/// them.
fn command_page(out: &mut String, title: &str, page: Page, text: &str) {
    let is_main = page.name == "dlock";
    let command =
        if is_main { args::command().disable_help_subcommand(true) } else { args::subcommand(page.name) };
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    name(out, title, &about.to_lowercase());
    let usage = command.clone().render_usage().to_string();
    let usage = roff::escape(&usage.trim_start_matches("Usage:").trim().replace(['<', '>'], ""));
    write!(out, ".SH \"SYNOPSIS\"\n{usage}\n").expect(INFALLIBLE);
    let (before, after) =
        text.split_at(text.match_indices("\n## ").next().map_or(text.len(), |(at, _)| at + 1));
    roff::sections(out, before);
    let connects = command.get_arguments().any(|argument| argument.get_long() == Some("endpoint"));
    options(out, command, is_main, false);
    if connects {
        out.push_str(".PP\ndlock(1) has the options for the connection and for messages.\n");
    }
    if is_main {
        out.push_str(".SH \"COMMON OPTIONS\"\nAll subcommands that ask a lock service take these.\n");
        let command = Command::new("dlock").disable_help_flag(true);
        options(out, CommonArgs::augment_args(command), false, true);
    }
    let (sections, end) = after
        .split_at(after.find("## Examples").or_else(|| after.find("## See also")).unwrap_or(after.len()));
    roff::sections(out, sections);
    if connects {
        roff::sections(out, include_str!("../../src/cli/manual/text/common.md"));
    }
    roff::sections(out, end);
}

/// The groups of options that every subcommand with a connection takes, as `clap_mangen` writes their headings.
const COMMON: [&str; 5] = ["CONNECTION", "ZOOKEEPER", "REDLOCK", "LOCK FILES", "MESSAGES"];

/// Writes all options in one section, each group of the help under its heading: either the common options or the others.
fn options(out: &mut String, command: Command, with_subcommands: bool, common: bool) {
    let headings: Vec<String> = command
        .get_arguments()
        .filter_map(|argument| argument.get_help_heading())
        .map(str::to_owned)
        .collect();
    // clap_mangen would leave out the text of an option that the short help hides. That every subcommand has --help stands in dlock(1).
    let man = Man::new(command.mut_args(|argument| {
        let is_help = argument.get_id() == "help" && !with_subcommands;
        let is_hidden = is_help || argument.is_hide_set();
        argument.hide_short_help(false).hide(is_hidden)
    }));
    let mut rendered = Vec::new();
    man.render_options_section(&mut rendered).expect(INFALLIBLE);
    if with_subcommands {
        man.render_subcommands_section(&mut rendered).expect(INFALLIBLE);
    }
    // clap_mangen defines a string for quotation marks at the top of each part; here they are written directly.
    let rendered = String::from_utf8_lossy(&rendered).replace("\\*(Aq", "\\(aq");
    // Values and operands are written as in the synopsis.
    let brackets = [
        ("\\fI<", "\\fI"),
        (">\\fR", "\\fR"),
        ("[\\fI", "\\fI"),
        ("<\\fI", "\\fI"),
        ("\\fR]", "\\fR"),
        ("\\fR>", "\\fR"),
    ];
    let rendered = brackets.iter().fold(rendered, |text, (bracket, bare)| text.replace(bracket, bare));
    // clap_mangen writes none if each option has a heading of its own.
    if !common && !rendered.contains(".SH OPTIONS\n") {
        out.push_str(".SH OPTIONS\n");
    }
    let mut is_left_out = common;
    for line in rendered.lines().filter(|line| !line.starts_with(".ie ") && !line.starts_with(".el ")) {
        let heading = line.strip_prefix(".SH ").map(|heading| heading.trim_matches('"'));
        if let Some(heading) = heading {
            is_left_out = COMMON.contains(&heading) != common;
        }
        if is_left_out {
            continue;
        }
        match heading {
            Some(heading) if heading != "OPTIONS" && heading != "SUBCOMMANDS" => {
                // clap_mangen writes it in capitals.
                let own = headings.iter().find(|own| own.eq_ignore_ascii_case(heading));
                writeln!(out, ".SS \"{}\"", own.map_or(heading, String::as_str)).expect(INFALLIBLE);
            }
            _ => writeln!(out, "{line}").expect(INFALLIBLE),
        }
    }
}

/// Writes a page. The first line of the text is its subject.
fn whole_page(out: &mut String, title: &str, text: &str) {
    let (about, sections) = text.split_once('\n').unwrap_or((text, ""));
    name(out, title, about.trim_start_matches("# "));
    roff::sections(out, sections);
    // The pages of the services end alike.
    if !text.contains("## See also") {
        out.push_str(".SH \"SEE ALSO\"\ndlock(1), dlock\\-run(1), dlock\\-doctor(1)\n");
    }
}

fn headings(page: Page) -> Vec<String> {
    let page = roff(page);
    let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
    headings.map(|title| title.trim_matches('"').to_owned()).collect()
}

#[test]
fn every_page_has_the_standard_sections() {
    for page in Page::all() {
        let headings = headings(page);
        let has = |title: &str| headings.iter().any(|heading| heading == title);
        let wanted = match (page.name, page.section) {
            (_, "7") if !text(page).contains("## See also") => {
                "NAME|ENDPOINT|DATA LAYOUT|INTEROPERABILITY|GUARANTEES|LIMITATIONS|PERMISSIONS|SEE ALSO"
            }
            ("recipes", _) => "NAME|DESCRIPTION|CRON|KUBERNETES|SEE ALSO",
            (_, "5" | "7") => "NAME|DESCRIPTION|SEE ALSO",
            ("dlock" | "completions" | "man", _) => {
                "NAME|SYNOPSIS|DESCRIPTION|OPTIONS|EXIT STATUS|EXAMPLES|SEE ALSO"
            }
            _ => "NAME|SYNOPSIS|DESCRIPTION|OPTIONS|EXIT STATUS|ENVIRONMENT|FILES|EXAMPLES|SEE ALSO",
        };
        for title in wanted.split('|') {
            assert!(has(title), "{}: {title} is not among {headings:?}", page.file_name());
        }
    }
}

#[test]
fn pages_have_every_exit_status_and_every_key_of_the_files() {
    let page = roff(Page::named("dlock").expect("a page"));
    for code in [64, 69, 70, 71, 73, 75, 76, 77, 124, 126, 127] {
        assert!(page.contains(&format!(".TP\n\\fB{code}\\fR")), "{code}");
    }
    let page = roff(Page::named("config").expect("a page"));
    for key in dlock::cli::config_file::KEYS {
        assert!(page.contains(&roff::escape(key)), "{key}");
    }
}

#[test]
fn option_on_a_page_has_a_text_and_a_heading_is_quoted_once() {
    for page in Page::all() {
        let text = roff(page);
        assert!(!text.contains("\"\"\n"), "{}", page.file_name());
        for term in text.split("\n.TP\n").skip(1) {
            let meaning = term.lines().nth(1).unwrap_or_default();
            assert!(!meaning.is_empty() && !meaning.starts_with('.'), "{}: {term}", page.file_name());
        }
    }
}
