//! ACLs: the key specs define which key permissions a command needs, so a user with only read
//! permission cannot add.

use crate::harness::{
    ADDS, CREATES, Command, DELETES, OWN, READS, REDISBLOOMS, Reply, Server, commands, dump,
    listed, load, ok, version,
};

/// Whether commands of modules can be in the server's own categories.
fn has_categories() -> bool {
    version().at_least((7, 2), (7, 2))
}

/// Whether modules can add categories.
fn has_own_categories() -> bool {
    version().at_least((7, 4), (8, 0))
}

/// The calls of the commands whose key flags are one of `keys`.
fn calls<const N: usize>(keys: [&[&str]; N]) -> impl Iterator<Item = &'static str> {
    commands().filter(move |command| keys.contains(&command.key)).map(|command| command.call)
}

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
    for line in calls([READS]) {
        assert!(!client.run(line).is_error(), "{line} only reads");
    }
    for line in calls([ADDS, DELETES, CREATES]) {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} by a user who may only read answered {reply:?}");
    }
}

/// Answers of the adding commands reveal data of the filter too, so these commands need both
/// permissions.
#[test]
fn a_user_who_may_only_write_cannot_query() {
    let (_server, mut client) = server_with_user("+@all %W~*");
    for line in calls([READS]) {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} by a user who may only write answered {reply:?}");
    }
    for line in calls([ADDS, DELETES]) {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} reveals data and answered {reply:?}");
    }
    for line in calls([CREATES]) {
        let reply = client.run(line);
        assert!(!refused(&reply), "{line} reveals nothing and answered {reply:?}");
    }
}

#[test]
fn a_user_with_other_keys_cannot_use_this_key() {
    let (_server, mut client) = server_with_user("+@all ~other:*");
    for Command { call: line, .. } in commands() {
        let reply = client.run(line);
        assert!(refused(&reply), "{line} answered {reply:?}");
    }
    assert!(!client.run("BF.ADD other:k a").is_error(), "its own keys are open");
}

/// In Redis 7.0, commands of modules have no categories.
#[test]
fn every_command_reads_or_writes() {
    let server = Server::start();
    let client = &mut server.client();
    for name in listed(client) {
        let reply = client.cmd(&["COMMAND", "INFO", &name]);
        let info = reply.elements()[0].elements();
        let [flags, categories] = [&info[2], &info[6]]
            .map(|texts| texts.elements().iter().map(Reply::text).collect::<Vec<_>>());
        if !has_categories() {
            assert!(categories.is_empty(), "{name}: {categories:?}");
            continue;
        }
        // @fast is not compared: it is as in RedisBloom, independent of the flags.
        for (flag, category) in [("write", "@write"), ("readonly", "@read")] {
            let [flagged, there] = [(&flags, flag), (&categories, category)]
                .map(|(texts, wanted)| texts.iter().any(|text| text == wanted));
            assert_eq!(flagged, there, "{name}: {flag} in {flags:?}, {category} in {categories:?}");
        }
        let both = ["@read", "@write"].map(|wanted| categories.iter().any(|text| text == wanted));
        assert!(both[0] != both[1], "{name}: {categories:?}");
    }
}

/// The category `bloom` needs Redis 7.4 or Valkey 8. RedisBloom's test suite expects exactly
/// RedisBloom's BF.* commands in it.
#[test]
fn the_bloom_category_is_exactly_the_commands_of_redisbloom() {
    let server = Server::start();
    let mut client = server.client();
    if !has_own_categories() {
        assert!(
            client.run("ACL CAT bloom").is_error(),
            "this server lets no module add a category"
        );
        return;
    }
    let reply = client.run("ACL CAT bloom");
    let mut inside: Vec<_> =
        reply.elements().iter().map(|name| name.text().to_lowercase()).collect();
    inside.sort();
    let mut expected = REDISBLOOMS.map(|command| command.name());
    expected.sort();
    // Redis 7.4 and Valkey 8.0 list no command of a module there; rules work as below.
    assert_eq!(inside, if version().at_least((8, 0), (8, 1)) { expected.to_vec() } else { vec![] });
    assert_eq!(client.run("ACL SETUSER user on nopass ~* -@all +@bloom"), ok());
    assert_eq!(client.run("AUTH user any"), ok());
    for Command { call, .. } in &REDISBLOOMS {
        let reply = client.run(call);
        assert!(!refused(&reply), "{call} answered {reply:?}");
    }
    for Command { call, .. } in &OWN {
        let reply = client.run(call);
        assert!(refused(&reply), "{call} answered {reply:?}");
    }
    assert!(refused(&client.run("GET k")));
}

/// `-@bloom` does not deny all commands; docs/guide/operations.md lists the others to deny.
#[test]
fn the_operations_page_names_the_commands_outside_of_the_category() {
    let page = include_str!("../../docs/guide/operations.md");
    for denied in OWN.iter().map(|command| format!("-{}", command.name())) {
        assert!(page.contains(&denied), "docs/guide/operations.md lacks {denied}");
    }
}

/// The lines of docs/guide/operations.md that make the roles, and the commands that the test sends:
/// all that the guard of docs/guide/guard.md, a client of docs/reference/sharding.md, an exporter
/// and a backup need.
const ROLES: [(&str, &[&str]); 6] = [
    // `urls` is the key of the examples in README.md and in "One filter".
    (
        "reader",
        &["BF.EXISTS urls:k a", "BF.EXISTS urls a", "BF.MEXISTS urls:k a COMPLETE", "EXISTS urls"],
    ),
    ("writer", &["BF.INSERT urls:k NOCREATE ITEMS d"]),
    (
        "sharded",
        &[
            "HGETALL urls",
            "BF.MEXISTS {urls:5968}:1 a",
            "BF.INSERT {urls:5968}:1 NOCREATE ITEMS d",
            "SET {urls:5968}:wait 1 EX 60",
            "WAIT 0 1",
        ],
    ),
    (
        "builder",
        &[
            "BF.RESERVE urls:new 0.01 100",
            "BF.MADD urls:new a b",
            "BF.INSERT urls:new NOCREATE ITEMS c",
            "RENAME urls:new urls:k",
            "UNLINK urls:new",
        ],
    ),
    (
        "monitor",
        &[
            "INFO everything",
            "EVAL return{redis.call('INFO','modules'),redis.call('BF.INFO','urls:k')} 0",
            "BF.INFO urls:k",
            "CLIENT SETNAME exporter",
            "SLOWLOG LEN",
            "LATENCY LATEST",
        ],
    ),
    (
        "backup",
        &[
            "BGSAVE SCHEDULE",
            "LASTSAVE",
            "INFO persistence",
            "BF.INFO urls:k",
            "BF.SCANDUMP urls:k 0",
        ],
    ),
];

/// Commands that no role may send: they read a seed, take a filter from outside, or leave the keys
/// of the role.
const NOBODYS: [&str; 21] = [
    "DUMP urls:k",
    "RESTORE urls:x 0 data",
    "COPY urls:k urls:x",
    "MIGRATE 127.0.0.1 1 urls:k 0 1",
    "DEBUG DIGEST-VALUE urls:k",
    "PSYNC ? -1",
    "SYNC",
    "MONITOR",
    "HSET urls shards 1",
    "SLOWLOG GET",
    "CONFIG GET dir",
    "ACL LIST",
    "GET urls:k",
    "DEL urls:k",
    "KEYS *",
    "FLUSHALL",
    "BF.EXISTS other a",
    "BF.INSERT other ITEMS a",
    "BF.INFO other",
    "RENAME urls:k other",
    "BF.SCANDUMP other 0",
];

#[test]
fn each_role_does_its_work_and_nothing_else() {
    let page = include_str!("../../docs/guide/operations.md");
    let server = Server::start();
    let mut admin = server.client();
    admin.run("BF.INSERT urls:k ITEMS a");
    admin.run("BF.RESERVE {urls:5968}:1 0.01 100");
    admin.run("BF.ADD other a");
    let lines: Vec<_> = page.lines().filter(|line| line.starts_with("ACL SETUSER ")).collect();
    assert_eq!(lines.len(), ROLES.len(), "the roles of the page");
    for line in lines {
        assert_eq!(admin.run(line), ok(), "{line}");
    }
    // Every command of the module, on a key of the roles.
    let own: Vec<String> = commands().map(|command| command.call_for("urls:k")).collect();
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_lowercase();
    for (role, work) in ROLES {
        let mut client = server.client();
        assert_eq!(client.run(&format!("AUTH {role} password")), ok());
        for line in work {
            let reply = client.run(line);
            assert!(!reply.is_error(), "{role}: {line} answered {reply:?}");
        }
        let may: Vec<String> = work.iter().map(|line| name(line)).collect();
        let others = ROLES.iter().flat_map(|(_, work)| work.iter().copied());
        let lines = others.chain(own.iter().map(String::as_str));
        for line in lines.filter(|line| !may.contains(&name(line))).chain(NOBODYS) {
            let reply = client.run(line);
            assert!(refused(&reply), "{role}: {line} answered {reply:?}");
        }
        // A script is no way around the role.
        for line in NOBODYS.iter().filter(|line| line.starts_with("BF.") || line.starts_with("GET"))
        {
            let words = line.split(' ').map(|word| format!("'{word}'")).collect::<Vec<_>>();
            let call = format!("return redis.call({})", words.join(","));
            let reply = client.cmd(&["EVAL", &call, "0"]);
            assert!(reply.is_error(), "{role}: {line} in a script answered {reply:?}");
        }
    }
}

/// The sets of commands that a recipe adds to a role: the code spans of its paragraph about roles.
fn added_by(recipe: &str) -> Vec<&str> {
    let (_, paragraph) = recipe.split_once("](operations.md#acl-roles)").expect("roles");
    let spans = paragraph.split('`').skip(1).step_by(2);
    spans.take_while(|span| span.starts_with('+')).collect()
}

/// docs/guide/load.md and merge.md name what their programs need besides the roles.
#[test]
fn the_recipes_name_what_their_programs_need_besides() {
    let loading = added_by(include_str!("../../docs/guide/load.md"));
    let merging = added_by(include_str!("../../docs/guide/merge.md"));
    let ([loader], [worker, gatherer, reader]) = (&loading[..], &merging[..]) else {
        panic!("{loading:?} {merging:?}")
    };
    let roles = include_str!("../../docs/guide/operations.md");
    let source = Server::start();
    let mut admin = source.client();
    admin.run("BF.RESERVE urls:1 0.01 100 NONSCALING SEED 1");
    let chunks = dump(&mut admin, "urls:1");
    let programs: [(&str, &str, &[&str]); 4] = [
        (
            "builder",
            loader,
            &[
                "UNLINK urls:k",
                "BF.RESERVE urls:k 0.01 100",
                "BF.BULKADD urls:k NOCREATE LINES a",
                "BF.BULKEXISTS urls:k LINES a",
            ],
        ),
        (
            "builder",
            worker,
            &[
                "UNLINK urls:1",
                "BF.RESERVE urls:1 0.01 100 NONSCALING SEED 1",
                "BF.MADD urls:1 a",
                "BF.SCANDUMP urls:1 0",
            ],
        ),
        (
            "builder",
            gatherer,
            &[
                "UNLINK urls:new",
                "BF.MERGE urls:new urls:1 urls:2",
                "RENAME urls:new urls:all",
                "UNLINK urls:1 urls:2",
            ],
        ),
        ("reader", reader, &["BF.MEXISTS urls:all a", "BF.EXISTS urls:all a", "BF.CARD urls:all"]),
    ];
    for (role, added, lines) in programs {
        let server = Server::start();
        let mut admin = server.client();
        let start = format!("ACL SETUSER {role} ");
        let line = roles.lines().find(|line| line.starts_with(&start)).expect("the role");
        assert_eq!(admin.run(&format!("{line} {added}")), ok());
        admin.run("BF.RESERVE urls:all 0.01 100");
        let mut client = server.client();
        assert_eq!(client.run(&format!("AUTH {role} password")), ok());
        if added == *gatherer {
            for key in ["urls:1", "urls:2"] {
                for chunk in &chunks {
                    assert_eq!(load(&mut client, key, chunk), ok());
                }
            }
        }
        for line in lines {
            let reply = client.run(line);
            assert!(!reply.is_error(), "{role} {added}: {line} answered {reply:?}");
        }
    }
}
