//! Ordered compression on pariter: the incumbent beside `compression.rs`.

use std::fs::File;
use std::io::{Read as _, Write as _};

use anyhow::Result;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use pariter::IteratorExt as _;

const BLOCK: usize = 64 * 1024;

fn main() -> Result<()> {
    let mut text = Vec::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/weather-2013.csv.gz");
    MultiGzDecoder::new(File::open(path)?).read_to_end(&mut text)?;
    let mut packed = Vec::new();
    let blocks: Vec<_> = text.chunks(BLOCK).map(<[u8]>::to_vec).collect();
    let parts = blocks.into_iter().parallel_map_custom(
        |options| options.threads(3),
        |block| {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
            gzip.write_all(&block)?;
            gzip.finish()
        },
    );
    for part in parts {
        packed.extend(part?);
    }
    let mut back = Vec::new();
    MultiGzDecoder::new(&packed[..]).read_to_end(&mut back)?;
    println!(
        "{} bytes in {}, the same after unpacking: {}",
        text.len(),
        packed.len(),
        back == text
    );
    Ok(())
}
