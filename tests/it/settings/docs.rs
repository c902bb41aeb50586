//! The site files in the documentation: whoever copies one gets a gateway that starts.

use std::path::{Path, PathBuf};

use tipbucket::settings::load;

/// README.md and every page of `docs/`, the decision records left out: they tell of the past.
fn pages() -> Vec<PathBuf> {
    let in_docs = std::fs::read_dir("docs").unwrap().map(|entry| entry.unwrap().path());
    let pages = in_docs.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let mut pages: Vec<_> = pages.chain([PathBuf::from("README.md")]).collect();
    pages.sort();
    pages
}

/// The blocks of a page that are marked as TOML, each with the line it begins on.
fn toml_blocks(page: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match &mut open {
            None if line == "```toml" => open = Some((number + 1, String::new())),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some((_, block)) => {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    blocks
}

fn is_site_file(block: &str) -> bool {
    block.lines().any(|line| line == "[site]")
}

/// Loads a block; what a site file must have beside it is added as a drop-in.
fn check(page: &Path, line: usize, block: &str, beside: &str) {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site.toml");
    std::fs::write(&site, block).unwrap();
    let drop_ins = folder.path().join("site.toml.d");
    std::fs::create_dir(&drop_ins).unwrap();
    std::fs::write(drop_ins.join("rest.toml"), beside).unwrap();
    load(&site, []).unwrap_or_else(|problems| panic!("{}:{line}: {problems}", page.display()));
}

#[test]
fn every_site_file_in_the_documentation_loads() {
    let mut in_readme = 0;
    for page in pages() {
        for (line, block) in toml_blocks(&page).into_iter().filter(|(_, block)| is_site_file(block)) {
            check(&page, line, &block, "");
            in_readme += usize::from(page == Path::new("README.md"));
        }
    }
    assert_eq!(in_readme, 1, "README.md shows a first site file");
}

#[test]
fn every_part_of_a_site_file_in_the_documentation_fits_into_one() {
    for page in pages() {
        for (line, block) in toml_blocks(&page).into_iter().filter(|(_, block)| !is_site_file(block)) {
            let mut rest = "site.name = \"x\"\n".to_owned();
            if !block.contains("[sources.") {
                rest.push_str("sources.try.type = \"simulated\"\n");
            }
            check(&page, line, &block, &rest);
        }
    }
}
