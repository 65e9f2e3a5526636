//! `redis-bloom drop`.

use crate::{
    harness::{Server, int},
    run::run_at,
};

#[test]
fn drop_removes_a_filter_and_nothing_else() {
    let server = Server::start();
    let mut client = server.client();
    client.run("BF.RESERVE urls 0.01 1000");
    client.run("SET text value");

    let ran = run_at(&server, "drop urls --dry-run");
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "urls would be removed\n"));
    assert_eq!(client.run("EXISTS urls"), int(1));

    let ran = run_at(&server, "drop urls");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (0, "", "urls removed\n"));
    assert_eq!(client.run("EXISTS urls"), int(0));

    let ran = run_at(&server, "drop urls");
    assert_eq!(ran.code, 4);
    assert_eq!(
        ran.stderr,
        "redis-bloom: drop urls: ERR not found\n  \
         There is no filter of this name; create it first.\n"
    );
    let ran = run_at(&server, "drop text");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert_eq!(client.run("EXISTS text"), int(1));
}
