//! Which documents go with one command, by their places in a round. Plain state, no I/O.

use std::collections::{HashMap, VecDeque};

use super::super::Document;

/// One command is for one collection, and inserts or replaces. In the order of each one's first document; suspects alone, at the end.
pub(super) fn by_collection(documents: &[Document]) -> VecDeque<Vec<usize>> {
    let mut groups: VecDeque<Vec<usize>> = VecDeque::new();
    let mut places: HashMap<(&str, bool), usize> = HashMap::new();
    let is_suspected = |i: &usize| documents[*i].hangups.is_suspected();
    let (suspects, others): (Vec<usize>, Vec<usize>) = (0..documents.len()).partition(is_suspected);
    for i in others {
        let place = *places.entry((&*documents[i].collection, documents[i].replaces)).or_insert_with(|| {
            groups.push_back(Vec::new());
            groups.len() - 1
        });
        groups[place].push(i);
    }
    groups.extend(suspects.into_iter().map(|one| vec![one]));
    groups
}

/// Which document it was is not said: asks with either half.
pub(super) fn take_apart(groups: &mut VecDeque<Vec<usize>>, group: &[usize]) {
    let (left, right) = group.split_at(group.len() / 2);
    groups.push_front(right.to_vec());
    groups.push_front(left.to_vec());
}

/// Some of the documents, in this order.
pub(super) fn chosen<'a>(documents: &'a mut [Document], group: &[usize]) -> Vec<&'a mut Document> {
    let mut all: Vec<Option<&mut Document>> = documents.iter_mut().map(Some).collect();
    group.iter().filter_map(|&i| all[i].take()).collect()
}
