//! The scripts that put the tool into packages.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

/// A script of the project.
fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts").join(name))
}

/// An installation, perhaps by root, runs nothing that was built, and changes no byte of it.
#[test]
fn an_installation_only_copies() {
    let directory = tempfile::tempdir().unwrap();
    let built = directory.path().join("target/cli");
    fs::create_dir_all(&built).unwrap();
    let (tool, marker) = (built.join("redis-bloom"), directory.path().join("ran"));
    let text = format!("#!/bin/sh\ntouch '{}'\necho text\n", marker.display());
    fs::write(&tool, &text).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |name: &str, words: &[&str]| {
        let mut command = script(name);
        command.env("CARGO_TARGET_DIR", directory.path().join("target"));
        command.args(words).output().expect("the script runs").status.success()
    };
    let installed = directory.path().join("installed");
    let to = installed.to_str().unwrap();
    assert!(!run("tool-files", &[to]), "there are no pages");
    assert!(run("tool-pages", &[]));
    fs::remove_file(&marker).unwrap();
    assert!(run("tool-files", &[to]));
    assert!(!marker.exists(), "the tool was run");
    assert_eq!(fs::read_to_string(installed.join("bin/redis-bloom")).unwrap(), text);
    for page in [
        "man/man1/redis-bloom.1",
        "bash-completion/completions/redis-bloom",
        "zsh/site-functions/_redis-bloom",
        "fish/vendor_completions.d/redis-bloom.fish",
    ] {
        assert_eq!(fs::read_to_string(installed.join("share").join(page)).unwrap(), "text\n");
    }
}

/// ring's file LICENSE only names the files that have its licences.
#[test]
fn crates_come_with_all_their_licences() {
    let printed = script("third-party-licences").output().expect("the script runs");
    assert!(printed.status.success(), "{printed:?}");
    let text = String::from_utf8_lossy(&printed.stdout);
    let (_, ring) = text.split_once("\n---- ring ").expect("ring is linked");
    let (ring, _) = ring.split_once("\n---- ").expect("another crate");
    for words in ["Apache License", "AUTHOR DISCLAIMS ALL WARRANTIES"] {
        assert!(ring.contains(words), "{words}");
    }
}
