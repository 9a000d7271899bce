//! `dlock man`.

use std::fmt::Write as _;
use std::path::Path;

use clap_mangen::Man;

use super::args::{self, Subcommand};
use super::exit_code::{ExitCode, Failure};
use super::man_text::{self, Piece, Section};
use super::{man_text_elect, man_text_looks};
use crate::backend::locator::SERVICES;

/// The page of `subcommand`, or the main page, in roff.
pub fn page(subcommand: Option<Subcommand>) -> String {
    let command = match subcommand {
        None => args::command().disable_help_subcommand(true),
        Some(subcommand) => subcommand.command(),
    };
    let usage = command.clone().render_usage().to_string();
    let name = file_name(subcommand);
    let title = name.trim_end_matches(".1").to_owned();
    let man = Man::new(command.clone())
        .title(&title)
        .section("1")
        .date(" ")
        .source(format!("dlock {}", env!("CARGO_PKG_VERSION")))
        .manual("dlock");
    let mut out = rendered(|w| man.render_title(w));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    write!(out, ".SH NAME\n{} \\- {}\n", escape(&title), escape(&about.to_lowercase())).expect(INFALLIBLE);
    write!(out, ".SH SYNOPSIS\n{}\n", escape(usage.trim_start_matches("Usage:").trim())).expect(INFALLIBLE);
    let (before, after) = texts(subcommand);
    sections(&mut out, before);
    out.push_str(&rendered(|w| man.render_options_section(w)));
    if subcommand.is_none() {
        out.push_str(&rendered(|w| man.render_subcommands_section(w)));
    }
    if subcommand == Some(Subcommand::Run) {
        exit_status(&mut out);
    }
    sections(&mut out, after);
    if subcommand == Some(Subcommand::Run) {
        services(&mut out);
    }
    out
}

const INFALLIBLE: &str = "writing to a String cannot fail";

/// What stands before the options and what after them.
fn texts(subcommand: Option<Subcommand>) -> (&'static [Section], &'static [Section]) {
    let all: &'static [Section] = match subcommand {
        None => man_text::MAIN,
        Some(Subcommand::Run) => return (man_text::RUN, man_text::RUN_AFTER),
        Some(Subcommand::Elect) => man_text_elect::ELECT,
        Some(Subcommand::Proclaim) => man_text_elect::PROCLAIM,
        Some(Subcommand::Leader) => man_text_elect::LEADER,
        Some(Subcommand::Status) => man_text_looks::STATUS,
        Some(Subcommand::List) => man_text_looks::LIST,
        Some(Subcommand::Watch) => man_text_looks::WATCH,
        Some(Subcommand::Break) => man_text_looks::BREAK,
        Some(Subcommand::Doctor) => man_text_looks::DOCTOR,
        Some(Subcommand::Completions | Subcommand::Man) => &[],
    };
    all.split_at(all.len().min(1))
}

fn rendered(render: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).expect("writing to a Vec cannot fail");
    String::from_utf8_lossy(&text).into_owned()
}

fn exit_status(out: &mut String) {
    out.push_str(".SH \"EXIT STATUS\"\n");
    out.push_str(
        "The command's own status. If it died of a signal, dlock dies of the same signal. Otherwise:\n",
    );
    for code in ExitCode::ALL {
        term(out, &code.number().to_string(), code.sentence());
    }
    out.push_str(".PP\nA command may use the same numbers; \\-\\-report tells them apart.\n");
}

fn sections(out: &mut String, sections: &[Section]) {
    for (title, pieces) in sections {
        writeln!(out, ".SH \"{title}\"").expect(INFALLIBLE);
        for piece in *pieces {
            match piece {
                Piece::Text(text) => paragraph(out, text),
                Piece::Term(name, text) => term(out, name, text),
                Piece::Code(lines) => code(out, lines),
            }
        }
    }
}

/// The sections of all services, by title.
fn services(out: &mut String) {
    let mut manuals: Vec<&str> = SERVICES.iter().flat_map(|service| service.manual).copied().collect();
    manuals.sort_unstable();
    for manual in manuals {
        markdown(out, manual);
    }
}

/// A section in the Markdown that [`crate::backend::service::Service::manual`] describes. Backticks are for its readers
/// alone.
fn markdown(out: &mut String, text: &str) {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("# ") {
            writeln!(out, ".SH \"{title}\"").expect(INFALLIBLE);
        } else if line == "```" {
            let typed: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            code(out, &typed.join("\n"));
        } else if !line.is_empty() {
            let mut words: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
            if let Some(name) = line.strip_prefix("**").and_then(|line| line.strip_suffix("**")) {
                term(out, name, &words.join(" ").replace('`', ""));
            } else {
                words.insert(0, line);
                paragraph(out, &words.join(" ").replace('`', ""));
            }
        }
    }
}

fn paragraph(out: &mut String, text: &str) {
    write!(out, ".PP\n{}\n", escape(text)).expect(INFALLIBLE);
}

fn code(out: &mut String, lines: &str) {
    write!(out, ".PP\n.RS 4\n.nf\n{}\n.fi\n.RE\n", escape(lines)).expect(INFALLIBLE);
}

fn term(out: &mut String, name: &str, text: &str) {
    write!(out, ".TP\n\\fB{}\\fR\n{}\n", escape(name), escape(text)).expect(INFALLIBLE);
}

/// Text as roff: dashes that can be copied, and no line that is taken for a request.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text.lines().map(|line| {
        let request = line.starts_with('.') || line.starts_with('\'');
        if request { format!("\\&{line}") } else { line.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn file_name(subcommand: Option<Subcommand>) -> String {
    subcommand.map_or_else(|| "dlock.1".to_owned(), |subcommand| format!("dlock-{}.1", subcommand.name()))
}

/// All pages: file name and text.
pub fn files() -> Vec<(String, String)> {
    let all = std::iter::once(None).chain(Subcommand::ALL.map(Some));
    all.map(|subcommand| (file_name(subcommand), page(subcommand))).collect()
}

/// Writes all pages into `directory`, which is made if it is not there.
pub fn write_all(directory: &Path) -> Result<(), Failure> {
    let cannot = |error: &std::io::Error| {
        Failure::new(ExitCode::CannotCreate, format!("cannot write into {}: {error}", directory.display()))
    };
    std::fs::create_dir_all(directory).map_err(|error| cannot(&error))?;
    for (name, text) in files() {
        std::fs::write(directory.join(name), text).map_err(|error| cannot(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_run_has_every_section_and_code() {
        let page = page(Some(Subcommand::Run));
        for title in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXIT STATUS",
            "ENVIRONMENT",
            "SIGNALS",
            "FILES",
            "EXAMPLES",
        ] {
            let heading = page.lines().any(|l| l.trim_start_matches(".SH ").trim_matches('"') == title);
            assert!(heading, "{title}");
        }
        for code in ExitCode::ALL {
            assert!(page.contains(&format!("\\fB{}\\fR", code.number())), "{code:?}");
        }
    }

    #[test]
    fn every_key_of_the_files_is_in_the_manual() {
        let page = page(Some(Subcommand::Run));
        for (key, _) in crate::cli::config_file::KEYS {
            assert!(page.contains(&escape(key)), "{key}");
        }
    }

    const PIECES: &[Piece] = &[
        Piece::Text("One two."),
        Piece::Code("x\n\ny"),
        Piece::Term("T t", "Means this."),
        Piece::Text("End."),
    ];

    #[test]
    fn markdown_becomes_what_the_other_sections_are_made_of() {
        let mut page = String::new();
        markdown(&mut page, "# A\n\nOne\n`two`.\n\n```\nx\n\ny\n```\n\n**T t**\nMeans\nthis.\n\nEnd.\n");
        let mut pieces = String::new();
        sections(&mut pieces, &[("A", PIECES)]);
        assert_eq!(page, pieces);
    }

    #[test]
    fn every_service_has_its_sections() {
        let page = page(Some(Subcommand::Run));
        for manual in SERVICES.iter().flat_map(|service| service.manual) {
            let title = manual.lines().next().and_then(|line| line.strip_prefix("# ")).expect("a title");
            assert!(page.contains(&format!(".SH \"{title}\"\n")), "{title}");
        }
    }

    #[test]
    fn text_is_never_a_request() {
        assert_eq!(escape(".so x\n'y\n-n \\fB"), "\\&.so x\n\\&'y\n\\-n \\efB");
    }
}
