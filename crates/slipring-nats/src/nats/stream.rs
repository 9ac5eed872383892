//! Streams: the settings that a journal needs, and the creation of a stream.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::api::{Info, NO_STREAM, NOT_ENABLED};
use super::connection::{Connection, Fault, LEADERLESS};
use super::subject::{check_name, matches};
use crate::errors::Error;

/// A stream that the sink creates if it does not exist.
///
/// The stream is stored in files. It keeps all messages until a limit is reached, and then refuses
/// new ones ([`Error::Full`]).
///
/// An existing stream keeps its own settings. The sink refuses a stream that has less than was
/// asked for: a missing subject, fewer replicas, or a lower limit ([`Error::WrongStream`]). It
/// reports other differences ([`OpenSink::remarks`](crate::OpenSink::remarks)). Settings that the
/// caller did not choose are not compared.
///
/// ```
/// use slipring_nats::StreamSettings;
/// let settings = StreamSettings::new("orders.frames").replicas(3).max_bytes(1 << 30);
/// assert_eq!(settings, StreamSettings::new("orders.frames").max_bytes(1 << 30).replicas(3));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    subjects: Vec<String>,
    replicas: Option<usize>,
    memory: bool,
    max_bytes: Option<u64>,
    max_age_seconds: Option<u64>,
    discard_old: bool,
}

impl StreamSettings {
    /// Describes a stream of one replica without limits, for the messages of `subject`.
    ///
    /// Example: [`StreamSettings`].
    pub fn new(subject: impl Into<String>) -> StreamSettings {
        StreamSettings {
            subjects: vec![subject.into()],
            replicas: None,
            memory: false,
            max_bytes: None,
            max_age_seconds: None,
            discard_old: false,
        }
    }

    /// Adds a subject.
    ///
    /// Example: [`StreamSettings`].
    pub fn subject(mut self, subject: impl Into<String>) -> StreamSettings {
        self.subjects.push(subject.into());
        self
    }

    /// Sets the number of servers on which the stream is stored: 1, 3 or 5. Each of them has all
    /// messages.
    ///
    /// Example: [`StreamSettings`].
    pub fn replicas(mut self, replicas: usize) -> StreamSettings {
        self.replicas = Some(replicas);
        self
    }

    /// Keeps the messages in the servers' memory.
    ///
    /// Example: [`StreamSettings`].
    pub fn in_memory(mut self) -> StreamSettings {
        self.memory = true;
        self
    }

    /// Sets the greatest size of the stream, in bytes.
    ///
    /// Example: [`StreamSettings`].
    pub fn max_bytes(mut self, bytes: u64) -> StreamSettings {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the greatest age of messages, in seconds. Older ones are removed. 0 means no limit.
    ///
    /// Example: [`StreamSettings`].
    pub fn max_age(mut self, seconds: u64) -> StreamSettings {
        self.max_age_seconds = Some(seconds);
        self
    }

    /// Removes the oldest messages at a limit, instead of refusing new ones. A source that lags
    /// further than the limit ends with [`Error::Trimmed`].
    ///
    /// Example: [`StreamSettings`].
    pub fn discard_old(mut self) -> StreamSettings {
        self.discard_old = true;
        self
    }

    /// Refuses settings that make no sense.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refused = |what: String| Err(Error::Option { what });
        let blank = |subject: &&String| subject.is_empty() || subject.contains(char::is_whitespace);
        if let Some(subject) = self.subjects.iter().find(blank) {
            return refused(format!(
                "{subject:?} is no subject of a stream: name one without blanks \
                 (StreamSettings::new)"
            ));
        }
        if let Some(replicas) = self.replicas.filter(|number| !(1..=5).contains(number)) {
            return refused(format!(
                "a stream has 1 to 5 replicas, and not {replicas}: choose 1, 3 or 5 \
                 (StreamSettings::replicas)"
            ));
        }
        if self.max_bytes == Some(0) {
            // For the server, 0 means no limit.
            return refused(
                "a stream of no bytes takes no event: choose a size, or none \
                 (StreamSettings::max_bytes)"
                    .into(),
            );
        }
        Ok(())
    }

    fn to_json(&self, stream: &str) -> Value {
        json!({
            "name": stream,
            "subjects": self.subjects,
            "retention": "limits",
            "storage": if self.memory { "memory" } else { "file" },
            "num_replicas": self.replicas.unwrap_or(1),
            "max_bytes": self.max_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            "max_age": self.max_age_seconds.unwrap_or(0).saturating_mul(SECOND),
            "max_msgs": -1,
            "max_msgs_per_subject": -1,
            "max_consumers": -1,
            "max_msg_size": -1,
            "discard": if self.discard_old { "old" } else { "new" },
            "duplicate_window": 100_000_000,
            "allow_atomic": true,
        })
    }

    /// Compares the settings that were asked for with the settings of an existing stream. Returns
    /// the settings in which the stream has less than was asked for, and the other differences.
    fn compare(&self, config: &Value) -> (Vec<String>, Vec<String>) {
        let (mut less, mut other) = (Vec::new(), Vec::new());
        let has = subjects(config);
        for subject in &self.subjects {
            if !has.iter().any(|pattern| matches(pattern, subject)) {
                less.push(format!("its subjects are {}, and lack {subject}", has.join(", ")));
            }
        }
        // A value of 0 or less means that there is no limit, or no such setting.
        let number = |name: &str| config[name].as_i64().and_then(|n| u64::try_from(n).ok());
        let replicas = number("num_replicas").unwrap_or(1).max(1);
        match self.replicas.map(|asked| asked as u64) {
            Some(asked) if replicas < asked => {
                less.push(format!("it has {replicas} replicas, and {asked} were asked for"));
            }
            Some(asked) if replicas > asked => {
                other.push(format!("it has {replicas} replicas, and {asked} were asked for"));
            }
            _ => {}
        }
        for (asked, name, unit, shown) in [
            (self.max_bytes, "max_bytes", 1, "bytes"),
            (self.max_age_seconds, "max_age", SECOND, "s"),
        ] {
            let Some(asked) = asked else { continue };
            let wanted = Some(asked.saturating_mul(unit)).filter(|limit| *limit > 0);
            let found = number(name).filter(|limit| *limit > 0);
            let text = |limit: Option<u64>| match limit {
                Some(limit) => format!("{} {shown}", limit as f64 / unit as f64),
                None => "no limit".into(),
            };
            let told =
                || format!("its {name} is {}, and {} was asked for", text(found), text(wanted));
            match found.unwrap_or(u64::MAX).cmp(&wanted.unwrap_or(u64::MAX)) {
                Ordering::Less => less.push(told()),
                Ordering::Equal => {}
                Ordering::Greater => other.push(told()),
            }
        }
        if self.memory && config["storage"] != "memory" {
            other.push("files hold it, and memory was asked for".into());
        }
        if self.discard_old && config["discard"] != "old" {
            other.push("it refuses messages at a limit, and discard_old was asked for".into());
        }
        (less, other)
    }
}

/// Nanoseconds of a second, the server's unit of time.
const SECOND: u64 = 1_000_000_000;

/// Requirements of a sink on the stream that it writes to.
#[derive(Clone, Copy)]
pub struct Writes<'a> {
    /// Subject that the user has chosen; empty if there is none.
    pub subject: &'a str,
    /// Whether the sink needs atomic batches.
    pub batches: bool,
}

/// A stream, with the settings that matter to a sink or a source.
pub struct Stream {
    pub name: String,
    /// Size limit for messages, in bytes; 0 if only the server's limit applies.
    pub max_message: u64,
    pub in_memory: bool,
    pub asynchronous: bool,
    /// Whether the stream takes atomic batches.
    pub atomic: bool,
    pub subjects: Vec<String>,
    /// Differences from the settings that were asked for.
    pub remarks: Vec<String>,
}

impl Connection {
    /// Checks the stream, and returns it. If it is missing, creates it with the settings `create`.
    /// `writes` says what a sink needs, and is `None` for a reader.
    pub async fn stream(
        &self,
        name: &str,
        create: Option<&StreamSettings>,
        writes: Option<Writes<'_>>,
    ) -> Result<Stream, Error> {
        check_name("stream", name)?;
        let failed = |fault| self.failed(name, fault);
        let info = match (self.info(name).await, create) {
            (Err(Fault::Refused { code: NO_STREAM, .. }), Some(settings)) => {
                let config = settings.to_json(name);
                let created: Info =
                    self.json(&format!("STREAM.CREATE.{name}"), config).await.map_err(failed)?;
                created
            }
            (info, _) => info.map_err(failed)?,
        };
        let mut wrong = wrong(&info.config, writes);
        let mut remarks = Vec::new();
        if let Some(asked) = create {
            let (less, other) = asked.compare(&info.config);
            wrong.extend(less);
            remarks = other;
        }
        if !wrong.is_empty() {
            return Err(Error::WrongStream { stream: name.into(), wrong });
        }
        let config = &info.config;
        Ok(Stream {
            name: name.into(),
            max_message: info.max_message(),
            in_memory: config["storage"] == "memory",
            asynchronous: config["persist_mode"] == "async",
            atomic: config["allow_atomic"] == true,
            subjects: subjects(config),
            remarks,
        })
    }

    /// Returns the error for a request that failed with `fault`. The request was about the stream
    /// `name`.
    pub fn failed(&self, name: &str, fault: Fault) -> Error {
        match fault {
            Fault::Refused { code: NO_STREAM, .. } => Error::NoStream { stream: name.into() },
            Fault::Refused { code, .. } if NOT_ENABLED.contains(&code) => {
                Error::NoJetStream { address: self.address.clone() }
            }
            Fault::Refused { why, .. } => Error::Server { why },
            // Without JetStream, nothing answers the account's requests.
            Fault::Away(why) if why.contains("no responders") => {
                Error::NoJetStream { address: self.address.clone() }
            }
            Fault::Away(why) if why.starts_with(LEADERLESS) => Error::Server { why },
            Fault::Away(why) => self
                .denied()
                .unwrap_or_else(|| Error::Unreachable { address: self.address.clone(), why }),
        }
    }
}

fn subjects(config: &Value) -> Vec<String> {
    let list = config["subjects"].as_array();
    list.into_iter().flatten().filter_map(|s| Some(s.as_str()?.to_string())).collect()
}

/// Returns the settings that do not suit a journal.
fn wrong(config: &Value, writes: Option<Writes<'_>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |fits: bool, text: String| {
        if !fits {
            wrong.push(text);
        }
    };
    let set = |name: &str| config[name] == true;
    let given = |name: &str| config.get(name).is_some_and(|value| !value.is_null());
    let retention = config["retention"].as_str().unwrap_or("limits");
    check(retention == "limits", format!("its retention is {retention}, and must be limits"));
    let per_subject = config["max_msgs_per_subject"].as_i64().unwrap_or(-1);
    check(
        per_subject <= 0,
        format!(
            "it keeps {per_subject} messages of a subject, and must keep all (max_msgs_per_subject)"
        ),
    );
    check(!given("sources"), "it has sources, and must belong to one ring".into());
    let marks = config["subject_delete_marker_ttl"].as_u64().unwrap_or(0);
    check(
        marks == 0,
        "it stores messages of its own where others are removed (subject_delete_marker_ttl), and \
         must not"
            .into(),
    );
    let mirror = &config["mirror"];
    let transforms = mirror["subject_transforms"].as_array().is_some_and(|all| !all.is_empty());
    check(
        mirror["filter_subject"].as_str().unwrap_or_default().is_empty() && !transforms,
        "it mirrors a part of a stream, and must have all of it (filter_subject, \
         subject_transforms)"
            .into(),
    );
    if let Some(Writes { subject, batches }) = writes {
        check(!given("mirror"), "it is a mirror, and must take messages itself".into());
        check(!set("sealed"), "it is sealed, and must take messages".into());
        check(!set("no_ack"), "it does not acknowledge (no_ack), and must".into());
        check(!set("allow_msg_counter"), "it holds counters (allow_msg_counter)".into());
        let has = subjects(config);
        check(
            subject.is_empty() || has.iter().any(|pattern| matches(pattern, subject)),
            format!("its subjects are {}, and {subject} is none of them", has.join(", ")),
        );
        check(
            !batches || set("allow_atomic"),
            "it takes no atomic batches, and must (allow_atomic)".into(),
        );
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_does_not_suit_is_named() {
        let config = json!({
            "retention": "workqueue", "max_msgs_per_subject": 3, "mirror": {"name": "A"},
            "sealed": true, "no_ack": true, "subjects": ["a"],
            "subject_delete_marker_ttl": 1_000_000_000,
        });
        let found = wrong(&config, Some(Writes { subject: "b", batches: true }));
        for word in [
            "workqueue",
            "3 messages",
            "is a mirror",
            "sealed",
            "no_ack",
            "b is none",
            "allow_atomic",
            "subject_delete_marker_ttl",
        ] {
            assert!(found.iter().any(|text| text.contains(word)), "{word}: {found:?}");
        }
        assert_eq!(
            wrong(&json!({"subjects": ["a.>"]}), Some(Writes { subject: "a.b", batches: false })),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_mirror_can_be_read_if_it_has_all() {
        let wrong = |mirror: Value| wrong(&json!({ "mirror": mirror }), None).join("");
        assert_eq!(wrong(json!({ "name": "A" })), "");
        assert_eq!(wrong(json!({ "name": "A", "filter_subject": "", "opt_start_seq": 3 })), "");
        assert!(wrong(json!({ "name": "A", "filter_subject": "a" })).contains("filter_subject"));
        let transform = json!({ "name": "A", "subject_transforms": [{ "src": "a", "dest": "b" }] });
        assert!(wrong(transform).contains("subject_transforms"));
    }

    #[test]
    fn a_stream_that_has_less_than_was_asked_for_is_told_from_one_that_has_more() {
        let config = json!({
            "subjects": ["a.>"], "num_replicas": 1, "max_bytes": 1000, "max_age": 60 * SECOND,
            "storage": "file", "discard": "new",
        });
        let asked = || StreamSettings::new("a.b");
        for (settings, less, other) in [
            (asked(), "", ""),
            (asked().replicas(1).max_bytes(1000).max_age(60), "", ""),
            (asked().subject("b"), "its subjects are a.>, and lack b", ""),
            (asked().replicas(3), "it has 1 replicas, and 3 were asked for", ""),
            (asked().max_bytes(2000), "its max_bytes is 1000 bytes, and 2000 bytes was", ""),
            (asked().max_bytes(999), "", "its max_bytes is 1000 bytes, and 999 bytes was"),
            (asked().max_age(61), "its max_age is 60 s, and 61 s was asked for", ""),
            (asked().max_age(0), "its max_age is 60 s, and no limit was asked for", ""),
            (asked().max_age(1), "", "its max_age is 60 s, and 1 s was asked for"),
            (asked().in_memory(), "", "memory was asked for"),
            (asked().discard_old(), "", "discard_old was asked for"),
        ] {
            let found = settings.compare(&config);
            for (texts, expected) in [(&found.0, less), (&found.1, other)] {
                assert!(texts.join("; ").contains(expected), "{settings:?}: {found:?}");
                assert_eq!(texts.is_empty(), expected.is_empty(), "{settings:?}: {found:?}");
            }
        }
        let open = json!({ "subjects": ["a.b"], "num_replicas": 3, "max_bytes": -1, "max_age": 0 });
        let (less, other) = asked().replicas(1).max_bytes(9).max_age(9).compare(&open);
        assert_eq!((less.len(), other.len()), (0, 3), "{less:?} {other:?}");
    }
}
