//! examples/replica.rs reads what `redis-bloom dump` writes, and answers as the server does.

use std::{fs, path::Path};

use crate::{
    harness::{Server, mexists, numbered},
    run::command_at,
};

#[path = "../../../examples/replica.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program")]
mod program;

use program::{Copy, Replica};

fn dump(server: &Server, key: &str, file: &Path) {
    let mut command = command_at(server, "dump");
    let output = command.arg(key).arg("-o").arg(file).output().expect("the tool runs");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_copy_answers_as_the_server_does() {
    let server = Server::start();
    let mut client = server.client();
    let file = server.dir().join("urls.dump");
    let items = numbered("item", 500);
    // The second half is absent but for some.
    let asked = numbered("item", 1000);
    let reserved = [
        "BF.RESERVE urls 0.01 1000",
        "BF.RESERVE urls 0.05 20 EXPANSION 1",
        "BF.RESERVE urls 0.01 1000 COUNTING",
        // 40 MB, three chunks.
        "BF.RESERVE urls 0.01 32000000",
    ];
    for line in reserved {
        client.run("DEL urls");
        client.run(line);
        client.cmd(&[&["BF.MADD".to_owned(), "urls".to_owned()][..], &items].concat());
        let _ = fs::remove_file(&file);
        dump(&server, "urls", &file);
        let copy = Copy::read(&file).unwrap();
        let answers: Vec<bool> = asked.iter().map(|item| copy.contains(item.as_bytes())).collect();
        assert_eq!(answers, mexists(&mut client, "urls", &asked), "{line}");
    }
}

#[test]
fn a_directory_of_shards_answers_as_the_server_does() {
    const SHARDS: u16 = 3;
    let server = Server::start();
    let mut client = server.client();
    let directory = server.dir().join("urls");
    fs::create_dir(&directory).unwrap();
    let items = numbered("item", 2000);
    for shard in 0..SHARDS {
        let key = format!("{{urls:{shard}}}:1");
        client.run(&format!("BF.RESERVE {key} 0.001 1000 SHARD {shard} {SHARDS}"));
        let of_shard = items
            .iter()
            .filter(|item| bloom::sharding::shard_of(item.as_bytes(), SHARDS) == shard)
            .cloned();
        client.cmd(
            &["BF.MADD".to_owned(), key.clone()].into_iter().chain(of_shard).collect::<Vec<_>>(),
        );
        dump(&server, &key, &directory.join(format!("shard-{shard:03}.rbloom")));
    }
    let mut asker = Replica::open(&directory).unwrap().asker();
    assert!(items.iter().all(|item| asker.contains(item.as_bytes())));
    // 1,000 absent items at 0.1 %: one is found on average, 20 by chance below 1e-18.
    let absent = numbered("absent", 1000);
    assert!(absent.iter().filter(|item| asker.contains(item.as_bytes())).count() < 20);
}
