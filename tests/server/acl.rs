//! Who may do what: the key specs say which permission a command needs, so a user who may only read
//! cannot add.

use crate::harness::{Reply, Server, ok, version};

const READERS: [&str; 8] = [
    "BF.EXISTS k a",
    "BF.MEXISTS k a b",
    "BF.CARD k",
    "BF.COUNT k a",
    "BF.INFO k",
    "BF.INFO k CAPACITY",
    "BF.DEBUG k",
    "BF.SCANDUMP k 0",
];
/// Commands that write and tell what is there.
const ADDERS: [&str; 4] = ["BF.ADD k x", "BF.MADD k x y", "BF.INSERT k ITEMS x", "BF.DEL k x"];
/// Commands that only write.
const FILLERS: [&str; 4] = [
    "BF.RESERVE new 0.01 100",
    "BF.LOADCHUNK k 1 data",
    "BF.LOAD new data",
    "BF.IMPORT new GUAVA data",
];
/// What RedisBloom does not have is not in its category.
const OUTSIDE: [&str; 4] = ["bf.count", "bf.del", "bf.import", "bf.load"];

fn refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(text) if text.starts_with("NOPERM"))
}

fn server_with_user(rules: &str) -> (Server, crate::harness::Client) {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.INSERT k COUNTING ITEMS a");
    assert_eq!(client.run(&format!("ACL SETUSER user on nopass {rules}")), ok(), "{rules}");
    assert_eq!(client.run("AUTH user any"), ok());
    (server, client)
}

#[test]
fn a_user_who_may_only_read_cannot_add() {
    let (_server, mut client) = server_with_user("+@all %R~*");
    for line in READERS {
        assert!(!client.run(line).is_error(), "{line} only reads");
    }
    for line in ADDERS.iter().chain(&FILLERS) {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} by a user who may only read answered {reply:?}");
    }
}

/// What a filter holds shows in the answers of the adding commands too, so they need both
/// permissions.
#[test]
fn a_user_who_may_only_write_cannot_ask() {
    let (_server, mut client) = server_with_user("+@all %W~*");
    for line in READERS {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} by a user who may only write answered {reply:?}");
    }
    for line in ADDERS {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} tells what is there and answered {reply:?}");
    }
    for line in FILLERS {
        let reply = client.run(line);
        assert!(!refused(&reply), "{line} tells nothing and answered {reply:?}");
    }
}

/// A bitmap shows in what is made of it, so it takes the permission to read it.
#[test]
fn an_import_needs_to_read_its_bitmap_and_to_write_its_key() {
    for (rules, open) in [
        ("+@all %R~map %W~new", true),
        ("+@all %W~map %W~new", false),
        ("+@all %R~map %R~new", false),
        ("+@all %W~new", false),
    ] {
        let (_server, mut client) = server_with_user(rules);
        let reply = client.run("BF.IMPORT new BITMAP map CAPACITY 10 ERROR 0.1");
        assert_eq!(refused(&reply), !open, "{rules}: {reply:?}");
    }
}

#[test]
fn a_user_with_other_keys_reaches_none() {
    let (_server, mut client) = server_with_user("+@all ~other:*");
    for line in READERS.iter().chain(&ADDERS).chain(&FILLERS) {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} answered {reply:?}");
    }
    assert!(!client.run("BF.ADD other:k a").is_error(), "its own keys are open");
}

/// The category `bloom` needs Redis 7.4 or Valkey 8; RedisBloom's suite wants exactly its own BF.*
/// commands in it.
#[test]
fn the_bloom_category_is_exactly_the_commands_of_redisbloom() {
    let server = Server::start();
    let mut client = server.client();
    if !version().at_least((7, 4), (8, 0)) {
        assert!(
            client.run("ACL CAT bloom").is_error(),
            "this server has no way to make a category"
        );
        return;
    }
    let names = |reply: Reply| {
        let mut names: Vec<_> =
            reply.elements().iter().map(|name| name.text().to_lowercase()).collect();
        names.sort();
        names
    };
    let mut ours = names(client.run("COMMAND LIST FILTERBY MODULE bf"));
    ours.retain(|name| !OUTSIDE.contains(&name.as_str()));
    assert_eq!(ours.len(), 11);
    assert_eq!(names(client.run("ACL CAT bloom")), ours);
    assert_eq!(client.run("ACL SETUSER user on nopass ~* -@all +@bloom"), ok());
    assert_eq!(client.run("AUTH user any"), ok());
    for line in READERS.iter().chain(&ADDERS).chain(&FILLERS) {
        let reply = client.run(line);
        let outside =
            OUTSIDE.iter().any(|name| line.to_lowercase().starts_with(&format!("{name} ")));
        assert_eq!(refused(&reply), outside, "{line} answered {reply:?}");
    }
    assert!(refused(&client.run("GET k")));
}

/// The users of docs/security.md, as written there.
#[test]
fn the_users_of_the_security_page_read_no_seed() {
    let page = include_str!("../../docs/security.md");
    let server = Server::start();
    let mut admin = server.client();
    admin.run("BF.RESERVE urls:k 0.01 100");
    admin.run("BF.ADD urls:k a");
    admin.run("BF.ADD other a");
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    assert_eq!(lines.len(), 2, "the two users of the page");
    for line in lines {
        assert_eq!(admin.run(line), ok(), "{line}");
    }
    let asks = ["BF.EXISTS urls:k a", "BF.MEXISTS urls:k a", "BF.CARD urls:k", "BF.INFO urls:k"];
    let adds = [
        "BF.ADD urls:k b",
        "BF.MADD urls:k c",
        "BF.INSERT urls:k ITEMS d",
        "BF.RESERVE urls:n 0.01 9",
    ];
    let reveals = [
        "BF.SCANDUMP urls:k 0",
        "DUMP urls:k",
        "BF.LOADCHUNK urls:x 1 data",
        "RESTORE urls:x 0 data",
        "COPY urls:k urls:x",
        "MIGRATE 127.0.0.1 1 urls:k 0 1",
        "DEBUG DIGEST-VALUE urls:k",
        "PSYNC ? -1",
        "SYNC",
        "MONITOR",
        "SLOWLOG GET",
        "CONFIG GET dir",
        "BF.EXISTS other a",
        "BF.ADD other a",
    ];
    for (user, may_add) in [("app", true), ("asker", false)] {
        let mut client = server.client();
        assert_eq!(client.run(&format!("AUTH {user} password")), ok());
        for line in asks {
            assert!(!client.run(line).is_error(), "{user}: {line}");
        }
        for line in adds {
            assert_eq!(refused(&client.run(line)), !may_add, "{user}: {line}");
        }
        for line in reveals {
            let reply = client.run(line);
            assert!(refused(&reply), "{user}: {line} answered {reply:?}");
        }
    }
}
