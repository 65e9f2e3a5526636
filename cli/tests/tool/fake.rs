//! A server that answers as a test says: for replies of servers that are not there, and for moments
//! that a real server does not give.

use std::{
    io::{BufReader, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use redis::Value;

/// A fake server: its port, and the commands that it got.
pub(crate) struct Fake {
    pub(crate) port: u16,
    commands: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Answers each command, its words separated by blanks, with the reply that `answer` gives, in
    /// RESP.
    pub(crate) fn start(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let (heard, answer) = (Arc::clone(&commands), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (heard, answer) = (Arc::clone(&heard), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut writer = stream.try_clone().expect("a descriptor");
                    let mut reader = BufReader::new(stream);
                    let mut parser = redis::Parser::new();
                    while let Ok(Value::Array(words)) = parser.parse_value(&mut reader) {
                        let words: Vec<_> = words
                            .into_iter()
                            .map(|word| match word {
                                Value::BulkString(word) => {
                                    String::from_utf8_lossy(&word).into_owned()
                                }
                                other => panic!("{other:?} is no word"),
                            })
                            .collect();
                        let command = words.join(" ");
                        let reply = answer(&command);
                        heard.lock().expect("no panic").push(command);
                        if writer.write_all(reply.as_bytes()).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { port, commands }
    }

    pub(crate) fn commands(&self) -> Vec<String> {
        self.commands.lock().expect("no panic").clone()
    }
}

/// An array of integers, nulls and strings in RESP: `:1`, `$-1`, and any other word as a string.
pub(crate) fn array(words: &[&str]) -> String {
    let mut reply = format!("*{}\r\n", words.len());
    for word in words {
        reply += &match word.as_bytes().first() {
            Some(b':') => format!("{word}\r\n"),
            _ if *word == "$-1" => "$-1\r\n".to_owned(),
            _ => format!("${}\r\n{word}\r\n", word.len()),
        };
    }
    reply
}
