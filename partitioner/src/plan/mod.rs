//! Choosing where to cut: candidates, what they cost, and which is best.

mod choose;
mod kit;
mod link_file;
mod places;
mod queue;
mod reason;
mod record;
mod record_file;
mod shortlist;
mod times;
mod weigh;
mod work;

pub use choose::{Impossible, apply, best, find, keep, mark_pareto, options};
pub use kit::{KitWriteError, write_kit};
pub use link_file::{LinkError, read_link};
pub use places::{NodeCosts, Place, codec_of, places};
pub use reason::{figure, milliseconds, reasons, why_not};
pub use record::{
    AttackRecord, Candidate, Constraints, Corrections, Leakage, MachineRecord, MeasuredRun,
    MetricRecord, PLAN_FILE, PLAN_FORMAT, Placement, PlanRecord,
};
pub use record_file::PlanRecordError;
pub use shortlist::shortlist;
pub use weigh::{Findings, OVERHEAD, Scenario, WeighError, Weighed, Weighing, weigh};
