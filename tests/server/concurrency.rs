//! Many connections use one filter at a time. The server runs one command after another, so no
//! addition is lost and every client reads its own additions at once.

use crate::harness::{Server, info, mexists, numbered, ok};

#[test]
fn eight_clients_add_and_query_one_filter() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 40;
    const BATCH: usize = 50;
    let server = Server::start();
    // The filter grows meanwhile: 100, 200, 400, … 12,800.
    assert_eq!(server.client().run("BF.RESERVE shared 1e-6 100"), ok());
    let answers: Vec<usize> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CLIENTS)
            .map(|worker| {
                let client = if worker % 2 == 0 { server.client() } else { server.resp3() };
                scope.spawn(move || work(client, worker, ROUNDS, BATCH))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a client failed")).collect()
    });
    let client = &mut server.client();
    let new = i64::try_from(answers.iter().sum::<usize>()).expect("a count of items");
    assert_eq!(info(client, "shared").items, new, "the count is the number of \"new\" answers");
    for worker in 0..CLIENTS {
        let items = numbered(&format!("client-{worker}"), ROUNDS * BATCH);
        assert!(mexists(client, "shared", &items).iter().all(|&there| there), "client {worker}");
    }
}

/// Runs one client: it adds batches of its own items and some items that all clients add, and
/// queries both. Returns the number of "new" answers.
fn work(mut client: crate::harness::Client, worker: usize, rounds: usize, batch: usize) -> usize {
    let mine = numbered(&format!("client-{worker}"), rounds * batch);
    let mut new = 0;
    for (round, items) in mine.chunks(batch).enumerate() {
        let (first, rest) = items.split_first().expect("a batch is not empty");
        let mut commands = vec![vec!["BF.ADD", "shared", first]];
        commands.push(
            ["BF.MADD", "shared"].into_iter().chain(rest.iter().map(String::as_str)).collect(),
        );
        let common = format!("common-{round}");
        commands.push(vec!["BF.INSERT", "shared", "NOCREATE", "ITEMS", &common, &common]);
        let replies = client.pipeline(&commands);
        let single = crate::harness::array([replies[0].clone()]);
        let answers = [single.answers(), replies[1].answers(), replies[2].answers()].concat();
        new += answers.iter().filter(|&&new| new).count();
        assert!(
            mexists(&mut client, "shared", items).iter().all(|&there| there),
            "client {worker}, {round}"
        );
        assert!(
            mexists(&mut client, "shared", &[common]).iter().all(|&there| there),
            "client {worker}, {round}"
        );
    }
    new
}
