//! Choosing where to cut: candidates, what they cost, and which is best.

mod record;
mod record_file;

pub use record::{
    AttackRecord, Candidate, Constraints, Corrections, Leakage, MachineRecord, MeasuredRun,
    MetricRecord, PLAN_FILE, PLAN_FORMAT, Placement, PlanRecord,
};
pub use record_file::PlanRecordError;
