//! Runs the tool in a pseudo-terminal, which is its controlling terminal, as a person does.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize},
};

use crate::{harness::wait_until, run::command};

/// A program in a pseudo-terminal.
pub(crate) struct Terminal {
    /// The side of the person.
    keyboard: File,
    /// The side of the program; open here too, so that its settings can be read after the end.
    line: OwnedFd,
    settings: Termios,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
    child: Killed,
}

/// A process that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It has usually ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program in a terminal of that size, with colours.
pub(crate) fn in_terminal(program: &Command, rows: u16, columns: u16) -> Terminal {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let person = openpt(flags).expect("a pseudo-terminal");
    grantpt(&person).expect("a pseudo-terminal");
    unlockpt(&person).expect("a pseudo-terminal");
    let line = ioctl_tiocgptpeer(&person, flags).expect("the other side");
    let copy = || line.try_clone().expect("a descriptor");
    // setsid makes the terminal the controlling one, and then becomes the program.
    let mut command = Command::new("setsid");
    command.arg("--ctty").arg(program.get_program()).args(program.get_args());
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(dir) = program.get_current_dir() {
        command.current_dir(dir);
    }
    command.stdin(copy()).stdout(copy()).stderr(copy());
    let settings = tcgetattr(&line).expect("the settings");
    set_size(&line, rows, columns);
    let child = Killed(command.spawn().expect("setsid of util-linux runs"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut screen = File::from(person.try_clone().expect("a descriptor"));
    let shared = Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // The read fails when nobody has the other side open any more.
        while let Ok(length @ 1..) = screen.read(&mut buffer) {
            shared.lock().expect("no panic").extend(&buffer[..length]);
        }
    });
    Terminal { keyboard: person.into(), line, settings, seen, reader, child }
}

fn set_size(line: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(line, size).expect("a size");
}

impl Terminal {
    /// Presses keys; `\x03` is Ctrl-C.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.line, rows, columns);
    }

    /// The process of the program: setsid becomes it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// Everything that was written since the start or the last [`Terminal::forget`].
    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned()
    }

    pub(crate) fn forget(&self) {
        self.seen.lock().expect("no panic").clear();
    }

    /// Waits until the program has written `text`.
    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) {
        wait_until(&format!("{text:?} on the terminal"), || self.seen().contains(text));
    }

    /// Waits until the terminal does not show what is typed.
    #[track_caller]
    pub(crate) fn wait_for_silence(&self) {
        let echoes = || {
            let settings = tcgetattr(&self.line).expect("the settings");
            settings.local_modes.contains(LocalModes::ECHO)
        };
        wait_until("the terminal hides what is typed", || !echoes());
    }

    /// Waits for the end of the program; returns its exit code and what it wrote. Checks that the
    /// settings of the terminal are as they were before.
    #[track_caller]
    pub(crate) fn end(mut self) -> (i32, String) {
        wait_until("the program ends", || self.child.0.try_wait().expect("a child").is_some());
        let status = self.child.0.wait().expect("a child");
        let now = tcgetattr(&self.line).expect("the settings");
        assert_eq!(now.local_modes, self.settings.local_modes, "the terminal is restored");
        drop(self.line);
        self.reader.join().expect("no panic");
        let seen = String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned();
        (status.code().expect("the tool ends by itself"), seen)
    }
}

#[test]
fn a_terminal_shows_what_a_pipe_shows_and_a_header_in_bold() {
    let mut plan = command();
    plan.args(["plan", "--items", "1M", "--error", "0.01"]);
    let piped = String::from_utf8(plan.output().expect("the tool runs").stdout).expect("UTF-8");
    assert!(!piped.contains('\x1b'), "{piped:?}");
    let (code, shown) = in_terminal(&plan, 24, 100).end();
    assert_eq!(code, 0);
    assert!(shown.contains("\x1b[1m"), "{shown:?}");
    let plain = shown.replace("\x1b[1m", "").replace("\x1b[0m", "").replace("\r\n", "\n");
    assert_eq!(plain, piped);
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (_, shown) = in_terminal(plan.env(name, value), 24, 100).end();
        assert_eq!(shown.replace("\r\n", "\n"), piped, "{name}={value}");
        plan.env_remove(name);
    }
}
