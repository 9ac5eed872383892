//! Ordered compression: three threads compress blocks, and one thread writes them in their order.
//! The slots keep their buffers, so no block is allocated.
//!
//! ```text
//!           ┌ compress-0 ┐
//!   feed ──>├ compress-1 ┤──> write
//!           └ compress-2 ┘
//! ```
//!
//! It prints:
//!
//! ```text
//! 2294215 bytes in 418814, the same after unpacking: true
//! ```

use std::fs::File;
use std::io::{Read as _, Write as _};

use anyhow::Result;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};

const BLOCK: usize = 64 * 1024;

fn main() -> Result<()> {
    let mut text = Vec::new();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/weather-2013.csv.gz");
    MultiGzDecoder::new(File::open(path)?).read_to_end(&mut text)?;
    let mut packed = Vec::new();
    slipring::ring(16, || (Vec::new(), Vec::new()))
        .update_pool("compress", 3, |_worker| {
            |(block, part): &mut (Vec<u8>, Vec<u8>), _| {
                part.clear();
                let mut gzip = GzEncoder::new(part, Compression::default());
                gzip.write_all(block)?;
                gzip.finish().map(|_| ())
            }
        })
        .read("write", |(_, part), _| packed.extend_from_slice(part))
        .feed(text.chunks(BLOCK), |(slot, _), block| block.clone_into(slot))?;
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
