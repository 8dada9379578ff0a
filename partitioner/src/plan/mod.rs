//! Choosing where to cut: candidates, what they cost, and which is best.

mod calibration;
mod choose;
mod evaluate;
mod examine;
mod findings;
mod kit;
mod leakage;
mod link_file;
mod metric;
pub mod npy;
mod places;
mod queue;
mod reason;
mod record;
mod record_file;
mod ridge;
mod sessions;
mod shortlist;
mod times;
mod trial;
mod weigh;
mod work;

pub use calibration::{
    Calibration, CalibrationError, CalibrationOptions, LABELS_JSON, LABELS_TEXT, Sample, file_stem,
};
pub use choose::{
    Impossible, apply, best, corrections, find, keep, mark_pareto, options, to_examine,
};
pub use evaluate::{EvaluateError, Evaluation, Evaluator};
pub use examine::{ExamineError, ExamineOptions, Examiner};
pub use findings::{Findings, FoundCodec};
pub use kit::{KitWriteError, write_kit};
pub use leakage::{
    Attacker, LeakageError, LeakageOptions, MIN_AT_INPUT, SPLITTING_IS_NOT_PRIVACY, leakage,
};
pub use link_file::{LinkError, read_link};
pub use metric::{Answer, Figure, Metric, MetricChoice, MetricError, MetricName, Tally};
pub use places::{NodeCosts, Place, places};
pub use reason::{figure, milliseconds, reasons, why_not};
pub use record::{
    AttackRecord, Candidate, Constraints, Leakage, MachineRecord, MeasuredRun, MetricRecord,
    PLAN_FILE, PLAN_FORMAT, Placement, PlanRecord,
};
pub use record_file::PlanRecordError;
pub use sessions::{SeamSessions, Sent, SessionsError};
pub use shortlist::shortlist;
pub use trial::{TrialError, TrialOptions, Tried, try_out};
pub use weigh::{OVERHEAD, Scenario, WeighError, Weighed, Weighing, weigh};
