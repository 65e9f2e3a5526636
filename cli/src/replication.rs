//! What a primary says about its replicas: `INFO replication`.

/// The replicas of a server, and how much of its replication stream they have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replication {
    /// Replicas that have a connection.
    pub(crate) connected: u64,
    /// The end of what the server has written.
    pub(crate) offset: Option<u64>,
    /// What each replica that is in step has acknowledged.
    acknowledged: Vec<u64>,
}

impl Replication {
    pub(crate) fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut found = Self::default();
        for line in text.lines() {
            let line = line.trim();
            let Some((name, value)) = line.split_once(':') else { continue };
            match name {
                "connected_slaves" => found.connected = value.parse().unwrap_or(0),
                "master_repl_offset" => found.offset = value.parse().ok(),
                _ if name.starts_with("slave") && value.contains("state=online") => {
                    let mut fields = value.split(',');
                    let offset = fields.find_map(|field| field.strip_prefix("offset="));
                    found.acknowledged.extend(offset.and_then(|offset| offset.parse::<u64>().ok()));
                }
                _ => {}
            }
        }
        found
    }

    /// How many replicas have all up to this offset.
    pub(crate) fn having(&self, offset: u64) -> u64 {
        self.acknowledged.iter().filter(|&&at| at >= offset).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_are_in_step_are_counted() {
        let text = "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=127.0.0.1,port=1,state=online,offset=90,lag=0\r\n\
                    slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=500,lag=0\r\n\
                    slave_expires_tracked_keys:0\r\nmaster_repl_offset:100\r\n";
        let found = Replication::parse(text.as_bytes());
        assert_eq!((found.connected, found.offset), (2, Some(100)));
        assert_eq!([found.having(90), found.having(91)], [1, 0]);
        assert_eq!(Replication::parse(b"role:slave"), Replication::default());
    }
}
