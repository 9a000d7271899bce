//! The manual pages, and `dlock man`.
//!
//! The options of a page are those of [`super::args`]. The rest is Markdown: of a subcommand or a topic in `text/`, of a lock
//! service in its own directory. `roff.rs` names the supported part of Markdown. `tests/recipes` runs each recipe.

mod pager;
mod roff;

use std::fmt::Write as _;
use std::path::Path;

use clap::{Args as _, Command};
use clap_mangen::Man;

use super::args::{self, CommonArgs};
use super::exit_code::ExitCode;
use super::page::Page;
pub use pager::show;
use roff::INFALLIBLE;

/// The date of the last change of the pages.
const DATE: &str = "2026-11-27";

impl Page {
    /// Returns the text in roff.
    pub fn roff(self) -> String {
        let mut out = String::new();
        let (title, section) = (self.title(), self.section);
        let version = env!("CARGO_PKG_VERSION");
        let heading = title.to_uppercase();
        writeln!(out, ".TH \"{heading}\" {section} \"{DATE}\" \"dlock {version}\" \"dlock\"")
            .expect(INFALLIBLE);
        if self.is_of_command() {
            command_page(&mut out, &title, self);
        } else {
            whole_page(&mut out, &title, self.text);
        }
        out
    }
}

fn name(out: &mut String, title: &str, about: &str) {
    write!(out, ".SH \"NAME\"\n{} \\- {}\n", roff::escape(title), roff::escape(about)).expect(INFALLIBLE);
}

/// Writes the page of a command: usage and options by clap, the description before the options, and the other sections after
/// them.
fn command_page(out: &mut String, title: &str, page: Page) {
    let (is_main, text) = (page.name == "dlock", page.text);
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
        roff::sections(out, include_str!("text/common.md"));
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
        argument.hide_short_help(false).hide(is_help)
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

/// Returns all pages: file name and text.
pub fn files() -> Vec<(String, String)> {
    Page::all().map(|page| (page.file_name(), page.roff())).collect()
}

/// Writes all pages into `directory`, and creates it. If its name has a section (`man1`), pages of another section go into the
/// directory beside it.
pub fn write_all(directory: &Path) -> anyhow::Result<()> {
    for page in Page::all() {
        let folder = folder_of(directory, page.section);
        let cannot = |error: &std::io::Error| {
            let reason = format!("cannot write into {}: {error}", folder.display());
            ExitCode::CannotCreate.error(reason)
        };
        std::fs::create_dir_all(&folder).map_err(|error| cannot(&error))?;
        std::fs::write(folder.join(page.file_name()), page.roff()).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

/// Returns the directory for pages of `section`.
fn folder_of(directory: &Path, section: &str) -> std::path::PathBuf {
    let name = directory.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    let of_one_section =
        name.strip_prefix("man").is_some_and(|n| n.len() == 1 && n.bytes().all(|b| b.is_ascii_digit()));
    if of_one_section { directory.with_file_name(format!("man{section}")) } else { directory.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headings(page: Page) -> Vec<String> {
        let page = page.roff();
        let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        headings.map(|title| title.trim_matches('"').to_owned()).collect()
    }

    #[test]
    fn every_page_has_the_standard_sections() {
        for page in Page::all() {
            let headings = headings(page);
            let has = |title: &str| headings.iter().any(|heading| heading == title);
            let wanted: &[&str] = match (page.name, page.section) {
                (_, "7") if !page.text.contains("## See also") => &[
                    "NAME",
                    "ENDPOINT",
                    "DATA LAYOUT",
                    "INTEROPERABILITY",
                    "GUARANTEES",
                    "LIMITATIONS",
                    "PERMISSIONS",
                    "SEE ALSO",
                ],
                ("recipes", _) => &["NAME", "DESCRIPTION", "CRON", "KUBERNETES", "SEE ALSO"],
                (_, "5" | "7") => &["NAME", "DESCRIPTION", "SEE ALSO"],
                ("dlock" | "completions" | "man", _) => {
                    &["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]
                }
                _ => &[
                    "NAME",
                    "SYNOPSIS",
                    "DESCRIPTION",
                    "OPTIONS",
                    "EXIT STATUS",
                    "ENVIRONMENT",
                    "FILES",
                    "EXAMPLES",
                    "SEE ALSO",
                ],
            };
            for title in wanted {
                assert!(has(title), "{}: {title} is not among {headings:?}", page.file_name());
            }
        }
    }

    #[test]
    fn pages_have_every_exit_status_and_every_key_of_the_files() {
        let page = Page::named("dlock").expect("a page").roff();
        for code in [64, 69, 70, 71, 73, 75, 76, 77, 124, 126, 127] {
            assert!(page.contains(&format!(".TP\n\\fB{code}\\fR")), "{code}");
        }
        let page = Page::named("config").expect("a page").roff();
        for key in crate::cli::config_file::KEYS {
            assert!(page.contains(&roff::escape(key)), "{key}");
        }
    }

    #[test]
    fn option_on_a_page_has_a_text_and_a_heading_is_quoted_once() {
        for page in Page::all() {
            let text = page.roff();
            assert!(!text.contains("\"\"\n"), "{}", page.file_name());
            for term in text.split("\n.TP\n").skip(1) {
                let meaning = term.lines().nth(1).unwrap_or_default();
                assert!(!meaning.is_empty() && !meaning.starts_with('.'), "{}: {term}", page.file_name());
            }
        }
    }

    #[test]
    fn a_page_of_another_section_goes_beside() {
        for (directory, section, folder) in [
            ("a/man1", "1", "a/man1"),
            ("a/man1", "7", "a/man7"),
            ("a/pages", "7", "a/pages"),
            ("manual", "7", "manual"),
        ] {
            assert_eq!(folder_of(Path::new(directory), section), Path::new(folder), "{directory} {section}");
        }
    }

    #[test]
    fn pages_have_names_of_their_own() {
        for page in Page::all() {
            assert_eq!(Page::named(page.name).map(Page::file_name), Some(page.file_name()));
        }
    }
}
