//! Choosing where to cut: candidates, what they cost, and which is best.

mod calibration;
mod evaluate;
mod leakage;
mod metric;
pub mod npy;
mod record;
mod ridge;
mod sessions;

pub use calibration::{
    Calibration, CalibrationError, CalibrationOptions, LABELS_JSON, LABELS_TEXT, Sample, file_stem,
};
pub use evaluate::{EvaluateError, Evaluation, Evaluator};
pub use leakage::{
    Attacker, LeakageError, LeakageOptions, MIN_AT_INPUT, SPLITTING_IS_NOT_PRIVACY, leakage,
};
pub use metric::{Answer, Figure, Metric, MetricChoice, MetricError, MetricName, Tally};
pub use record::{
    AttackRecord, Candidate, Constraints, Corrections, Leakage, MachineRecord, MeasuredRun,
    MetricRecord, PLAN_FILE, PLAN_FORMAT, Placement, PlanRecord,
};
pub use sessions::{SeamSessions, Sent, SessionsError};
