//! `redis-bloom completion SHELL` and `redis-bloom man`: what packages install beside the program.

use std::io::{self, Write as _};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use super::Arguments as All;
use crate::{
    error::{Error, Exit},
    output::ended_by_reader,
};

/// Prints a script that completes the options in a shell
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// The shell
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<Exit, Error> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut All::command(), "redis-bloom", &mut script);
        let script = String::from_utf8_lossy(&script);
        print(mended(self.shell, &script).as_bytes())
    }
}

/// The script without two faults of the generator.
fn mended(shell: Shell, script: &str) -> String {
    match shell {
        // It has two names for each subcommand of a program with a hyphen in its name: it finds
        // one, and looks for the options of the other.
        Shell::Bash => script.replace("redis__subcmd__bloom", "redis__bloom"),
        // `*::` hides the options behind the first of several arguments, `*:` does not.
        Shell::Zsh => script.replace("\n'*::", "\n'*:"),
        _ => script.to_owned(),
    }
}

/// Prints the manual page.
pub(crate) fn manual() -> Result<Exit, Error> {
    let mut page = Vec::new();
    let mut command = All::command();
    command.build();
    render(&command, &mut page).map_err(Error::file("the manual page"))?;
    print(&page)
}

/// The page of the program, then one section for each subcommand: one page is easier to find and to
/// search than twelve.
fn render(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let program = clap_mangen::Man::new(command.clone());
    program.render_title(page)?;
    program.render_name_section(page)?;
    program.render_synopsis_section(page)?;
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        let name = subcommand.get_name();
        if name == "help" {
            continue;
        }
        writeln!(page, ".SH \"REDIS-BLOOM {}\"", name.to_uppercase())?;
        let part = clap_mangen::Man::new(without_global(subcommand));
        let mut sections = Vec::new();
        part.render_synopsis_section(&mut sections)?;
        part.render_description_section(&mut sections)?;
        part.render_options_section(&mut sections)?;
        // Sections of the subcommand's own.
        let sections = String::from_utf8_lossy(&sections).replace(".SH ", ".SS ");
        page.extend(sections.bytes());
    }
    program.render_options_section(page)?;
    writeln!(page, "{END}")
}

/// The subcommand without the options that all have: those are at the end of the page.
fn without_global(subcommand: &Command) -> Command {
    let own = subcommand.get_arguments().filter(|argument| !argument.is_global_set());
    let name = format!("redis-bloom {}", subcommand.get_name());
    let mut part = Command::new(name).disable_help_flag(true).args(own.cloned());
    if let Some(about) = subcommand.get_long_about().or(subcommand.get_about()) {
        part = part.about(about.clone());
    }
    part
}

/// What follows the options.
const END: &str = "\
.SH \"EXIT STATUS\"
.TP\n0\nDone.
.TP\n1\nNo: an item is absent, the rate is too high, or a planned filter does not fit.
.TP\n2\nThe command line or a file is wrong.
.TP\n3\nNo connection, or no authentication.
.TP\n4\nThe server refused a command.
.TP\n5\nA part is done. The rest can be resumed.
.TP\n130\nCtrl-C, or SIGTERM.
.TP\n141\nThe reader of the output closed it, as head does.
.SH ENVIRONMENT
.TP\nREDISCLI_AUTH\nThe password, instead of \\-\\-pass.
.TP\nNO_COLOR\nIf it is set and not empty, nothing is coloured.
.TP\nTERM\nOn a dumb terminal nothing is coloured, and top prints the filters once.
.SH FILES
.TP\nFILE.redis\\-bloom\nThe journal of load: how much of FILE is in the filter.
.TP\nFILE*.part\nWhat a killed dump to FILE leaves. Nothing reads it: delete it.
.SH \"SEE ALSO\"
redis\\-cli(1), redis\\-server(1), and docs/reference/cli.md of redis\\-bloom";

fn print(bytes: &[u8]) -> Result<Exit, Error> {
    io::stdout().write_all(bytes).or_else(ended_by_reader)?;
    Ok(Exit::Done)
}
