//! The linear relaxation of a problem within bounds on the numbers of flows.
//!
//! The load of a component is at most the upper hull of its capacity over its flows. Lines of the
//! hull are added if a solution exceeds them. If the bounds allow only one number, the hull is
//! exact.

use super::component::{Carries, IMPOSSIBLE};
use super::hull::{Hull, Line};
use super::problem::Problem;
use super::simplex::{End, Linear};

/// Tolerance of a capacity, relative to the largest load.
pub const ABOVE: f64 = 1e-8;

/// Maximum number of rounds in which lines are added.
const MOST_ROUNDS: usize = 40;

/// The objectives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Maximise the rate.
    Rate,
    /// Minimise CPU for a given rate.
    Cpu {
        /// Minimum rate.
        rate: f64,
    },
    /// Minimise flows for a given rate and CPU.
    Flows {
        /// Minimum rate.
        rate: f64,
        /// Maximum CPU.
        cpu: f64,
    },
}

/// The components whose numbers of flows are variables. The others have their best number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// No components: an upper bound.
    None,
    /// Components whose number of flows other constraints use.
    Needed,
    /// All components.
    All,
}

/// Reasons why a relaxation has no solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPoint {
    /// The bounds or the limits of the objective contradict each other.
    Infeasible,
    /// Nothing limits the rate.
    Unlimited,
    /// The arithmetic failed.
    Lost,
}

/// A solution of a relaxation.
#[derive(Clone, Debug)]
pub struct Point {
    /// The rate, or the negative of CPU or flows. Greater is better.
    pub score: f64,
    /// Flow along each path, by [`Problem::variable`].
    pub flow: Vec<f64>,
    /// Flows of each component. Zero if they are not variables.
    pub flows: Vec<f64>,
}

/// A problem with an objective.
#[derive(Clone, Debug)]
pub struct Relaxation<'a> {
    /// The problem.
    pub problem: &'a Problem,
    /// Objective.
    pub goal: Goal,
    /// True for each component whose number of flows is a variable.
    pub counted: Vec<bool>,
    /// Maximum load for each number of flows, for components with a variable and a single load.
    tables: Vec<Vec<f64>>,
    /// Greatest load of each component.
    pub tops: Vec<f64>,
    /// Highest possible rate.
    pub top: f64,
    /// Lines that were useful for components with tables of seconds.
    lines: Vec<Vec<Line>>,
    /// Loads of an earlier solution, near which lines are likely to be needed.
    pub hints: Vec<f64>,
    /// Number of values computed, in tables of linear programs and of capacities.
    pub work: u64,
}

/// The program of one relaxation, and the positions of its flows.
struct Tableau {
    linear: Linear,
    /// Flows of each component: a constant and variables.
    flows: Vec<(f64, Vec<usize>)>,
}

impl<'a> Relaxation<'a> {
    /// Creates the relaxation of a problem whose rate cannot exceed `top`.
    pub fn new(problem: &'a Problem, goal: Goal, top: f64, which: Counted) -> Relaxation<'a> {
        let count = problem.components.len();
        let counted: Vec<bool> = (0..count)
            .map(|at| match which {
                Counted::None => false,
                Counted::Needed => problem.counts(at),
                Counted::All => true,
            })
            .collect();
        let table = |at: usize| {
            if counted[at] {
                problem.components[at].table()
            } else {
                Vec::new()
            }
        };
        Relaxation {
            goal,
            tables: (0..count).map(table).collect(),
            tops: (0..count).map(|at| problem.load_at_most(at, top)).collect(),
            top,
            lines: vec![Vec::new(); count],
            hints: vec![0.0; count],
            work: 0,
            counted,
            problem,
        }
    }

    /// Returns bounds on the flows of each component that exclude no solution.
    pub fn bounds(&self) -> Vec<(u32, u32)> {
        let components = self.problem.components.iter().zip(&self.counted);
        components
            .map(|(it, &counted)| {
                if counted {
                    (0, it.flows_at_most())
                } else {
                    (it.least.max(1), it.most)
                }
            })
            .collect()
    }

    /// Returns the capacity of a component for a number of flows, and for a mix of commodities if
    /// it matters. Returns [`IMPOSSIBLE`] if the members cannot have this number.
    pub fn capacity(&self, component: usize, flows: u32, mix: &[f64]) -> f64 {
        let it = &self.problem.components[component];
        match &it.carries {
            Carries::Alike { .. } => self.tables[component][flows as usize],
            Carries::Mixed { .. } if flows == 0 => 0.0,
            Carries::Mixed { .. } if flows < it.least || flows > it.most => IMPOSSIBLE,
            Carries::Mixed { seconds } => {
                let of = seconds[flows as usize].iter().zip(mix);
                let of = of.filter(|(_, share)| **share > 0.0);
                1.0 / of.map(|(seconds, share)| seconds * share).sum::<f64>()
            }
        }
    }

    /// Returns the load of the flow through a component, and its mix.
    pub fn load(&self, component: usize, flow: &[f64]) -> (f64, Vec<f64>) {
        let mut rates = self.problem.rates(component, flow);
        let it = &self.problem.components[component];
        match &it.carries {
            Carries::Alike { weights, .. } => {
                let load = rates.iter().zip(weights).map(|(rate, it)| rate * it).sum();
                (load, Vec::new())
            }
            Carries::Mixed { .. } => {
                for (rate, _) in rates.iter_mut().zip(&it.passes).filter(|it| *it.1) {
                    *rate = 0.0;
                }
                let load: f64 = rates.iter().sum();
                let share = if load > 0.0 { 1.0 / load } else { 0.0 };
                rates.iter_mut().for_each(|rate| *rate *= share);
                (load, rates)
            }
        }
    }

    /// Returns the hull of a component's capacity within bounds.
    pub fn hull(&self, component: usize, (low, high): (u32, u32), mix: &[f64]) -> Hull {
        let load = |flows| self.capacity(component, flows, mix);
        Hull::new(load, low, high, self.tops[component])
    }

    /// Returns the best solution within bounds.
    pub fn solve(&mut self, bounds: &[(u32, u32)]) -> Result<Point, NoPoint> {
        let mut tableau = self.tableau(bounds);
        self.bind_budgets(&mut tableau, bounds);
        for (component, &range) in bounds.iter().enumerate() {
            self.bind(&mut tableau, component, range)?;
        }
        let counts: u32 = bounds
            .iter()
            .map(|(low, high)| high.saturating_sub(*low))
            .sum();
        let mut before = 0;
        for _ in 0..MOST_ROUNDS {
            let end = tableau.linear.solve();
            self.work += tableau.linear.work() - before + u64::from(counts);
            before = tableau.linear.work();
            match end {
                End::Optimal => {}
                End::Infeasible => return Err(NoPoint::Infeasible),
                End::Unbounded => return Err(NoPoint::Unlimited),
                End::Lost => return Err(NoPoint::Lost),
            }
            let point = self.point(&tableau);
            if !self.cut(&mut tableau, &point, bounds) {
                return Ok(point);
            }
        }
        Ok(self.point(&tableau))
    }

    fn point(&self, tableau: &Tableau) -> Point {
        let value = |at: usize| tableau.linear.value(at);
        let flows = tableau.flows.iter();
        Point {
            score: tableau.linear.objective() + self.constant(tableau),
            flow: (0..self.problem.flows()).map(value).collect(),
            flows: flows
                .map(|(least, more)| least + more.iter().map(|&at| value(at)).sum::<f64>())
                .collect(),
        }
    }

    /// Returns the constant term of the objective.
    fn constant(&self, tableau: &Tableau) -> f64 {
        let own = tableau.flows.iter().zip(&self.problem.flows_of);
        match self.goal {
            Goal::Flows { .. } => own
                .filter(|(_, of)| of.is_empty())
                .map(|((least, _), _)| -least)
                .sum(),
            _ => 0.0,
        }
    }

    /// Creates the variables, the objective, and the rows for the rate of each part.
    fn tableau(&self, bounds: &[(u32, u32)]) -> Tableau {
        let problem = self.problem;
        let rate = problem.flows();
        let mut next = rate + 1;
        let mut flows: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); bounds.len()];
        for (at, &(low, high)) in bounds.iter().enumerate() {
            if self.counted[at] && problem.flows_of[at].is_empty() {
                flows[at].0 = f64::from(low);
                if high > low {
                    flows[at].1.push(next);
                    next += 1;
                }
            }
        }
        for (at, of) in problem.flows_of.iter().enumerate() {
            if self.counted[at] && !of.is_empty() {
                let sum = of.iter().map(|&of| flows[of].0).sum();
                let variables = of.iter().flat_map(|&of| flows[of].1.clone());
                flows[at] = (sum, variables.collect());
            }
        }
        let mut linear = Linear::new(next);
        for (part, weight) in problem.weights.iter().enumerate() {
            let commodities = problem.commodities.iter().enumerate();
            let of_part = commodities.filter(|it| it.1.part == part);
            let ways =
                of_part.flat_map(|(at, _)| (0..problem.ways.len()).map(move |way| (way, at)));
            let ways = ways.map(|(way, at)| (problem.variable(way, at), -1.0));
            match self.goal {
                Goal::Rate => {
                    let ways = ways.chain([(rate, *weight)]);
                    linear.at_most(ways, 0.0);
                }
                Goal::Cpu { rate } | Goal::Flows { rate, .. } => {
                    linear.at_most(ways, -weight * rate);
                }
            }
        }
        let cpu = problem.cpu();
        match self.goal {
            Goal::Rate => linear.maximise([(rate, 1.0)]),
            Goal::Cpu { .. } => linear.maximise(cpu.iter().map(|it| -it).enumerate()),
            Goal::Flows { cpu: most, .. } => {
                if cpu.iter().any(|&it| it > 0.0) {
                    linear.at_most(cpu.into_iter().enumerate(), most);
                }
                linear.maximise((rate + 1..next).map(|at| (at, -1.0)));
            }
        }
        Tableau { linear, flows }
    }

    /// Adds rows for cores and memory of hosts, and for the bounds.
    fn bind_budgets(&self, tableau: &mut Tableau, bounds: &[(u32, u32)]) {
        let problem = self.problem;
        for (cores, components) in &problem.cores {
            let cpu = |&at: &usize| problem.passing(at, move |it| problem.components[at].cpu[it]);
            let terms: Vec<(usize, f64)> = components.iter().flat_map(cpu).collect();
            if !terms.is_empty() {
                tableau.linear.at_most(terms, *cores);
            }
        }
        let Tableau { linear, flows } = tableau;
        let own = |at: &usize| self.counted[*at] && problem.flows_of[*at].is_empty();
        for each in &problem.memory {
            let (mut terms, mut right) = (Vec::new(), 1.0 + 1e-9);
            for at in (0..bounds.len()).filter(own) {
                right -= each[at] * flows[at].0;
                terms.extend(flows[at].1.iter().map(|&variable| (variable, each[at])));
            }
            if terms.iter().any(|it| it.1 > 0.0) || right < 0.0 {
                linear.at_most(terms, right);
            }
        }
        for (at, &(low, high)) in bounds.iter().enumerate() {
            if !self.counted[at] {
                continue;
            }
            let (least, variables) = &flows[at];
            let more = |factor: f64| variables.iter().map(move |&it| (it, factor));
            if !variables.is_empty() || f64::from(high) < *least {
                linear.at_most(more(1.0), f64::from(high) - least);
            }
            if f64::from(low) > *least {
                linear.at_most(more(-1.0), least - f64::from(low));
            }
        }
    }

    /// Adds a row: the load of a component, weighted by commodity, is at most a line over its
    /// flows.
    fn bound_by(
        &self,
        tableau: &mut Tableau,
        component: usize,
        weight: impl Fn(usize) -> f64,
        line: Line,
    ) {
        let (least, variables) = &tableau.flows[component];
        let loads = self.problem.passing(component, weight);
        let flows = variables.iter().map(|&it| (it, -line.slope));
        let terms: Vec<(usize, f64)> = loads.chain(flows).collect();
        tableau.linear.at_most(terms, line.at(*least));
    }

    /// Adds the rows of a component that are known from the start.
    fn bind(&self, tableau: &mut Tableau, at: usize, bounds: (u32, u32)) -> Result<(), NoPoint> {
        let it = &self.problem.components[at];
        let flat = |at_none: f64| Line {
            slope: 0.0,
            at_none,
        };
        let asks = |commodity: usize| if it.passes[commodity] { 0.0 } else { 1.0 };
        let counted = self.counted[at];
        if it.flows_at_most() == 0 || bounds.1 == 0 {
            self.bound_by(tableau, at, asks, flat(0.0));
            return match bounds.0 {
                0 => Ok(()),
                _ if counted => Err(NoPoint::Infeasible),
                _ => Ok(()),
            };
        }
        if counted && bounds.0 == 0 && self.is_free_for_some(at) {
            let line = Line {
                slope: self.top,
                at_none: 0.0,
            };
            self.bound_by(tableau, at, asks, line);
        }
        match &it.carries {
            Carries::Alike { weights, .. } if !counted => {
                let most = it.most_load();
                if most.is_finite() {
                    self.bound_by(tableau, at, |it| weights[it], flat(most));
                }
            }
            Carries::Alike { weights, .. } => {
                let hull = self.hull(at, bounds, &[]);
                if hull.is_empty() {
                    return Err(NoPoint::Infeasible);
                }
                let [below, above] = hull.lines_at_load(self.hints[at]);
                let mut lines = vec![flat(hull.most())];
                for line in [hull.line(hull.ends().0 + 0.5), below, above] {
                    if !lines.contains(&line) {
                        lines.push(line);
                    }
                }
                for line in lines {
                    self.bound_by(tableau, at, |it| weights[it], line);
                }
            }
            Carries::Mixed { .. } => {
                self.bind_mixed(tableau, at, bounds);
            }
        }
        Ok(())
    }

    /// True if a component carries some commodity without a limit. The commodity still needs a
    /// flow.
    fn is_free_for_some(&self, component: usize) -> bool {
        let it = &self.problem.components[component];
        let asking = || (0..it.cpu.len()).filter(|&at| !it.passes[at]);
        match &it.carries {
            Carries::Alike { weights, .. } => asking().any(|at| weights[at] <= 0.0),
            Carries::Mixed { seconds } => {
                asking().any(|at| seconds.iter().any(|row| row[at] <= 0.0))
            }
        }
    }

    fn bind_mixed(&self, tableau: &mut Tableau, at: usize, bounds: (u32, u32)) {
        let it = &self.problem.components[at];
        let one = Line {
            slope: 0.0,
            at_none: 1.0,
        };
        let each = Line {
            slope: 1.0,
            at_none: 0.0,
        };
        let possible = |commodity: usize| self.seconds(at, commodity, bounds, one).is_finite();
        let impossible = |commodity: usize| if possible(commodity) { 0.0 } else { 1.0 };
        if (0..it.cpu.len()).any(|commodity| impossible(commodity) > 0.0) {
            let none = Line {
                slope: 0.0,
                at_none: 0.0,
            };
            self.bound_by(tableau, at, impossible, none);
        }
        self.bound_mixed(tableau, at, bounds, one);
        if self.counted[at] {
            self.bound_mixed(tableau, at, bounds, each);
            self.bound_by(tableau, at, |commodity| it.cpu[commodity], each);
            for &line in &self.lines[at] {
                self.bound_mixed(tableau, at, bounds, line);
            }
        } else {
            let most = Line {
                slope: 0.0,
                at_none: f64::from(bounds.1),
            };
            self.bound_by(tableau, at, |commodity| it.cpu[commodity], most);
        }
    }

    /// Returns the least seconds of a commodity within bounds, multiplied by a line.
    fn seconds(&self, at: usize, commodity: usize, (low, high): (u32, u32), line: Line) -> f64 {
        let it = &self.problem.components[at];
        let Carries::Mixed { seconds } = &it.carries else {
            return 0.0;
        };
        if it.passes[commodity] {
            return 0.0;
        }
        let counts = low.max(it.least).max(1)..=high.min(it.most);
        let each = counts.map(|flows| match line.at(f64::from(flows)) {
            factor if factor > 0.0 => factor * seconds[flows as usize][commodity],
            _ => 0.0,
        });
        each.fold(f64::INFINITY, f64::min)
    }

    /// Adds a row that holds for each number of flows: Σ seconds · rate ≤ 1, multiplied by the
    /// line.
    fn bound_mixed(&self, tableau: &mut Tableau, at: usize, bounds: (u32, u32), line: Line) {
        let ends = [bounds.0, bounds.1].map(|flows| line.at(f64::from(flows)));
        if ends.iter().any(|&it| it < 0.0) {
            return;
        }
        let weight = |commodity: usize| {
            let least = self.seconds(at, commodity, bounds, line);
            if least.is_finite() { least } else { 0.0 }
        };
        self.bound_by(tableau, at, weight, line);
    }

    /// Adds the lines that a solution exceeds. Returns true if there were any.
    fn cut(&mut self, tableau: &mut Tableau, point: &Point, bounds: &[(u32, u32)]) -> bool {
        let mut any = false;
        for at in (0..bounds.len())
            .filter(|&at| self.counted[at])
            .collect::<Vec<_>>()
        {
            let (load, mix) = self.load(at, &point.flow);
            let room = ABOVE * self.tops[at].max(1e-3);
            if load <= room {
                continue;
            }
            let flows = point.flows[at];
            let line = self.hull(at, bounds[at], &mix).line(flows);
            if load <= line.at(flows) + room {
                continue;
            }
            match &self.problem.components[at].carries {
                Carries::Alike { weights, .. } => {
                    self.bound_by(tableau, at, |it| weights[it], line);
                    any = true;
                }
                Carries::Mixed { .. } => {
                    let rates = self.problem.rates(at, &point.flow);
                    let seconds = |(commodity, rate): (usize, &f64)| {
                        if *rate > 0.0 {
                            rate * self.seconds(at, commodity, bounds[at], line)
                        } else {
                            0.0
                        }
                    };
                    let asked: f64 = rates.iter().enumerate().map(seconds).sum();
                    if asked > line.at(flows) + room * 10.0 && asked.is_finite() {
                        self.bound_mixed(tableau, at, bounds[at], line);
                        self.lines[at].push(line);
                        any = true;
                    }
                }
            }
        }
        any
    }
}
