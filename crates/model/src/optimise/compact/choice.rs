//! Chooses numbers of flows for a given flow of data.

use super::component::{Carries, IMPOSSIBLE};
use super::relax::{ABOVE, Relaxation};

impl Relaxation<'_> {
    /// True if data that need a flow pass the component.
    pub fn needs_a_flow(&self, component: usize, flow: &[f64]) -> bool {
        let rates = self.problem.rates(component, flow);
        let passes = &self.problem.components[component].passes;
        let tiny = self.top * 1e-7;
        rates
            .iter()
            .zip(passes)
            .any(|(rate, passes)| !passes && *rate > tiny)
    }

    /// Returns the fewest flows in a range with which a component carries the data that pass it.
    pub fn fewest(&self, component: usize, range: (u32, u32), flow: &[f64]) -> Option<u32> {
        let it = &self.problem.components[component];
        let (load, mix) = self.load(component, flow);
        let needs = self.needs_a_flow(component, flow);
        let cpu: f64 = match &it.carries {
            Carries::Alike { .. } => 0.0,
            Carries::Mixed { .. } => {
                let rates = self.problem.rates(component, flow);
                rates
                    .iter()
                    .zip(&it.cpu)
                    .map(|(rate, cpu)| rate * cpu)
                    .sum()
            }
        };
        let room = 1.0 + 1e-7;
        let fits = |&flows: &u32| {
            let capacity = self.capacity(component, flows, &mix);
            capacity > IMPOSSIBLE
                && (flows > 0 || !needs)
                && load <= capacity * room + ABOVE * self.tops[component].max(1e-3)
                && cpu <= f64::from(flows) * room + ABOVE
        };
        (range.0..=range.1).find(fits)
    }

    /// Returns the total number of flows. Flows of linked components count once.
    pub fn count(&self, flows: &[u32]) -> f64 {
        let own = flows.iter().zip(&self.problem.flows_of);
        own.filter(|(_, of)| of.is_empty())
            .map(|(flows, _)| f64::from(*flows))
            .sum()
    }

    /// Returns the fewest flows, at least those in `from`, that carry the given flow of data.
    /// Returns `None` if there are none.
    pub fn fitting(&self, from: &[f64], flow: &[f64]) -> Option<Vec<u32>> {
        let problem = self.problem;
        let mut flows = vec![0_u32; from.len()];
        for (at, it) in problem.components.iter().enumerate() {
            let is_own = problem.flows_of[at].is_empty();
            if self.counted[at] && is_own {
                let first = (from[at] - 1e-6).ceil().max(0.0) as u32;
                flows[at] = self.fewest(at, (first, it.flows_at_most()), flow)?;
            } else if !self.counted[at] && matches!(it.carries, Carries::Mixed { .. }) {
                self.fewest(at, (it.least.max(1), it.most), flow)?;
            }
        }
        self.link(&mut flows);
        for (at, of) in problem.flows_of.iter().enumerate() {
            if self.counted[at] && !of.is_empty() {
                self.fewest(at, (flows[at], flows[at]), flow)?;
            }
        }
        self.has_memory(&flows).then_some(flows)
    }

    /// Sets the flows of linked components to the sum of the flows that pass them.
    pub fn link(&self, flows: &mut [u32]) {
        for (at, of) in self.problem.flows_of.iter().enumerate() {
            if self.counted[at] && !of.is_empty() {
                flows[at] = of.iter().map(|&of| flows[of]).sum();
            }
        }
    }

    /// True if all hosts have enough memory for these flows.
    pub fn has_memory(&self, flows: &[u32]) -> bool {
        self.problem.memory.iter().all(|each| {
            let held = each.iter().zip(flows);
            held.map(|(each, flows)| each * f64::from(*flows))
                .sum::<f64>()
                <= 1.0 + 1e-8
        })
    }
}
