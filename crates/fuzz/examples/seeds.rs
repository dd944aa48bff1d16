//! Writes the seeds of a target into a folder: `seeds TARGET FOLDER`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder] = &arguments[..] else {
        return Err("seeds TARGET FOLDER".into());
    };
    let target = fuzz::find(name).ok_or("there is no such target")?;
    for (number, seed) in (0..).zip((target.seeds)()) {
        std::fs::write(Path::new(folder).join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
