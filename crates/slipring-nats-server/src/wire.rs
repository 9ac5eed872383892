//! The client protocol of NATS: frames from the server, and frames to it.

use std::io;

/// A message that a [`Client`](crate::Client) has received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Subject that the message was published to.
    pub subject: String,
    /// Subject to which the sender expects a reply.
    pub reply: Option<String>,
    /// Status of a message from the server itself, e.g. 503.
    pub status: Option<u16>,
    /// The header block as it came, with its first line; empty without headers.
    pub headers: String,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Message {
    /// Returns the first value of a header. Names are compared without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// Returns the first value of the header `name` in a header block.
pub(crate) fn header<'b>(block: &'b str, name: &str) -> Option<&'b str> {
    let lines = block.split("\r\n").skip(1);
    let mut pairs = lines.filter_map(|line| line.split_once(':'));
    pairs.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A frame from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Info(String),
    Message { sid: u64, message: Message },
    Ping,
    Pong,
    Ok,
    Error(String),
}

/// Reads the frame at the start of `bytes`. Returns the frame and its length, or `None` if more
/// bytes are needed.
pub(crate) fn parse(bytes: &[u8]) -> io::Result<Option<(Frame, usize)>> {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = std::str::from_utf8(&bytes[..end]).map_err(|_| malformed(&bytes[..end]))?;
    let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let after = end + 2;
    let frame = match verb.to_ascii_uppercase().as_str() {
        "INFO" => Frame::Info(rest.to_owned()),
        "PING" => Frame::Ping,
        "PONG" => Frame::Pong,
        "+OK" => Frame::Ok,
        "-ERR" => Frame::Error(rest.trim().trim_matches('\'').to_owned()),
        verb @ ("MSG" | "HMSG") => {
            return message(verb == "HMSG", rest, &bytes[after..])
                .ok_or_else(|| malformed(line.as_bytes()))
                .map(|message| message.map(|(frame, length)| (frame, after + length)));
        }
        _ => return Err(malformed(line.as_bytes())),
    };
    Ok(Some((frame, after)))
}

/// Reads a message. The outer `None` means that its first line is malformed, and the inner `None`
/// that more bytes are needed.
fn message(has_headers: bool, line: &str, body: &[u8]) -> Option<Option<(Frame, usize)>> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    let total: usize = words.pop()?.parse().ok()?;
    let head: usize = if has_headers { words.pop()?.parse().ok()? } else { 0 };
    let (subject, sid, reply) = match words[..] {
        [subject, sid] => (subject, sid, None),
        [subject, sid, reply] => (subject, sid, Some(reply.to_owned())),
        _ => return None,
    };
    let sid = sid.parse().ok()?;
    if head > total {
        return None;
    }
    if body.len() < total + 2 {
        return Some(None);
    }
    let headers = String::from_utf8_lossy(&body[..head]).into_owned();
    // "NATS/1.0 503 No Responders"
    let first = headers.split("\r\n").next().unwrap_or_default();
    let status = first.split_ascii_whitespace().nth(1).and_then(|status| status.parse().ok());
    let payload = body[head..total].to_vec();
    let message = Message { subject: subject.to_owned(), reply, status, headers, payload };
    Some(Some((Frame::Message { sid, message }, total + 2)))
}

fn malformed(line: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed frame {text:?}"))
}

/// Writes the header block of these headers.
pub(crate) fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let lines = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    format!("NATS/1.0\r\n{}\r\n", lines.collect::<String>()).into_bytes()
}

/// Writes the frame of a publication.
pub(crate) fn publication(
    subject: &str,
    reply: Option<&str>,
    block: Option<&[u8]>,
    payload: &[u8],
) -> Vec<u8> {
    let reply = reply.map_or(String::new(), |reply| format!("{reply} "));
    let head = block.map_or(0, <[u8]>::len);
    let total = head + payload.len();
    let line = match block {
        Some(_) => format!("HPUB {subject} {reply}{head} {total}\r\n"),
        None => format!("PUB {subject} {reply}{total}\r\n"),
    };
    [line.as_bytes(), block.unwrap_or_default(), payload, b"\r\n"].concat()
}

/// Decodes base64 with padding.
pub(crate) fn decode_base64(text: &str) -> io::Result<Vec<u8>> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "malformed base64");
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return Err(wrong()),
            };
            bits = bits << 6 | u32::from(value);
        }
        if group.len() == 1 {
            return Err(wrong());
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_once_they_are_whole() {
        let text = b"HMSG a.b 7 inbox 41 44\r\nNATS/1.0 503 No\r\nNats-Stream:  S \r\nx: 1\r\n\r\nabc\r\nPING\r\n";
        let block_length = text.len() - 8 - b"HMSG a.b 7 inbox 41 44\r\n".len() - 3;
        let text = String::from_utf8_lossy(text)
            .replace("41 44", &format!("{block_length} {}", block_length + 3));
        let text = text.as_bytes();
        for cut in 0..text.len() - 6 {
            assert_eq!(parse(&text[..cut]).unwrap(), None, "{cut}");
        }
        let (frame, length) = parse(text).unwrap().unwrap();
        assert_eq!(&text[length..], b"PING\r\n");
        let Frame::Message { sid: 7, message } = frame else { panic!("{frame:?}") };
        assert_eq!((message.status, message.reply.as_deref()), (Some(503), Some("inbox")));
        assert_eq!(message.header("nats-stream"), Some("S"));
        assert_eq!(message.payload, b"abc");
        assert_eq!(parse(b"PING\r\n").unwrap(), Some((Frame::Ping, 6)));
        for wrong in [&b"MSG a 1 x\r\n"[..], b"HMSG a 1 9 3\r\n", b"WHAT\r\n", b"MSG 3\r\n"] {
            assert_eq!(parse(wrong).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }

    #[test]
    fn publications_state_their_lengths() {
        let plain = publication("s", Some("r"), None, b"abc");
        assert_eq!(plain, b"PUB s r 3\r\nabc\r\n");
        let headed = publication("s", None, Some(&block(&[("A", "b")])), b"xy");
        assert_eq!(headed, b"HPUB s 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nxy\r\n");
    }

    #[test]
    fn base64_is_decoded() {
        let cases =
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob")];
        for (text, bytes) in cases {
            assert_eq!(decode_base64(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(decode_base64("+/8=").unwrap(), [0xFB, 0xFF]);
        assert!(decode_base64("Z").is_err() && decode_base64("Zm 9").is_err());
    }
}
