//! Circles and floors of a graph.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A graph, as the successors of each node.
pub type Graph = Vec<BTreeSet<usize>>;

/// Returns the groups of nodes that reach each other, each sorted; a node in no circle is a group
/// of one. The groups that a group points at come before it.
pub fn groups(graph: &Graph) -> Vec<Vec<usize>> {
    // Tarjan's algorithm.
    struct State<'g> {
        graph: &'g Graph,
        index: Vec<Option<usize>>,
        low: Vec<usize>,
        stack: Vec<usize>,
        next: usize,
        found: Vec<Vec<usize>>,
    }
    fn visit(state: &mut State<'_>, node: usize) {
        (state.index[node], state.low[node]) = (Some(state.next), state.next);
        state.next += 1;
        state.stack.push(node);
        for &to in &state.graph[node] {
            if state.index[to].is_none() {
                visit(state, to);
                state.low[node] = state.low[node].min(state.low[to]);
            } else if state.stack.contains(&to) {
                state.low[node] = state.low[node].min(state.index[to].unwrap_or(usize::MAX));
            }
        }
        if state.index[node] == Some(state.low[node]) {
            let from = state.stack.iter().position(|&on| on == node).unwrap_or(0);
            let mut group = state.stack.split_off(from);
            group.sort_unstable();
            state.found.push(group);
        }
    }
    let (index, low) = (vec![None; graph.len()], vec![0; graph.len()]);
    let mut state = State { graph, index, low, stack: Vec::new(), next: 0, found: Vec::new() };
    for node in 0..graph.len() {
        if state.index[node].is_none() {
            visit(&mut state, node);
        }
    }
    state.found
}

/// Returns the circles: the groups that have more than one node.
pub fn circles(graph: &Graph) -> Vec<Vec<usize>> {
    groups(graph).into_iter().filter(|group| group.len() > 1).collect()
}

/// Returns a shortest circle through nodes of `group`; the first node is not repeated at the end.
pub fn shortest(graph: &Graph, group: &[usize]) -> Vec<usize> {
    let from = |start: usize| {
        let mut before = BTreeMap::from([(start, start)]);
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            if graph[node].contains(&start) {
                let mut circle = vec![node];
                while circle.last() != Some(&start) {
                    circle.push(before[circle.last().unwrap_or(&start)]);
                }
                circle.reverse();
                return Some(circle);
            }
            for &to in &graph[node] {
                if group.contains(&to) && !before.contains_key(&to) {
                    before.insert(to, node);
                    queue.push_back(to);
                }
            }
        }
        None
    };
    group.iter().filter_map(|&start| from(start)).min_by_key(Vec::len).unwrap_or_default()
}

/// Returns the floor of each node. A group stands one floor above the highest group that it points
/// at, and on floor 1 if it points at no other group.
pub fn floors(graph: &Graph) -> Vec<usize> {
    let mut floors = vec![0; graph.len()];
    for group in groups(graph) {
        let below = group.iter().flat_map(|&node| &graph[node]).filter(|to| !group.contains(to));
        let floor = below.map(|&to| floors[to]).max().unwrap_or(0) + 1;
        group.iter().for_each(|&node| floors[node] = floor);
    }
    floors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(nodes: usize, arrows: &[(usize, usize)]) -> Graph {
        let mut graph = vec![BTreeSet::new(); nodes];
        for &(from, to) in arrows {
            graph[from].insert(to);
        }
        graph
    }

    #[test]
    fn circles_are_found() {
        let graph = graph(6, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (1, 0)]);
        assert_eq!(circles(&graph), [[0, 1, 2]]);
        assert_eq!(shortest(&graph, &[0, 1, 2]), [0, 1]);
        assert_eq!(groups(&graph).len(), 4);
        assert!(circles(&vec![BTreeSet::new(); 3]).is_empty());
    }

    #[test]
    fn a_long_circle_is_walked_in_order() {
        let graph = graph(4, &[(0, 2), (2, 1), (1, 3), (3, 0)]);
        assert_eq!(shortest(&graph, &[0, 1, 2, 3]), [0, 2, 1, 3]);
    }

    #[test]
    fn floors_are_counted_from_the_ground() {
        let graph = graph(5, &[(0, 1), (1, 2), (2, 1), (2, 3), (0, 4)]);
        assert_eq!(floors(&graph), [3, 2, 2, 1, 1]);
    }
}
