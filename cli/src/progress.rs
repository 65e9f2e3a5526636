//! Progress on stderr: a bar on a terminal, otherwise a line every ten seconds.
//!
//! ```text
//! part-07.txt  [=========>        ]  52 %  5.21 G of 10.0 G  17.9 M/s  ETA 4:28
//! ```

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Output;

/// Time between two lines where no bar is drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Time between two drawings of the bar.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// The progress of one input.
pub(crate) struct Progress {
    output: Output,
    bar: Option<ProgressBar>,
    label: String,
    /// Where the work ends, in bytes; `None` if that is unknown.
    length: Option<u64>,
    /// Where the work began, in bytes.
    begin: u64,
    started: Instant,
    shown: Instant,
}

impl Progress {
    pub(crate) fn new(output: &Output, label: &str, length: Option<u64>) -> Self {
        let bar = output.progress_on_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
            let template = if length.is_some() {
                "{prefix}  [{bar:18}]  {percent:>3} %  {msg}"
            } else {
                "{prefix}  {spinner}  {msg}"
            };
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            bar.set_style(style.progress_chars("=> "));
            bar.set_prefix(label.to_owned());
            bar
        });
        let now = Instant::now();
        Self {
            output: *output,
            bar,
            label: label.to_owned(),
            length,
            begin: 0,
            started: now,
            shown: now,
        }
    }

    /// Goes on at `position`: what lies before was done in an earlier run.
    pub(crate) fn from(mut self, position: u64) -> Self {
        self.begin = position;
        self
    }

    /// Shows that the work is at `position` of its length, and that this run has done `amount` of
    /// what `readable` writes.
    pub(crate) fn at(&mut self, position: u64, amount: u64, readable: fn(u64) -> String) {
        let every = if self.bar.is_some() { DRAWN_EVERY } else { LINE_EVERY };
        if !self.output.talks() || self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        let elapsed = self.started.elapsed().as_secs_f64();
        let rate = (amount as f64 / elapsed) as u64;
        let mut text = format!("{}  {}/s", readable(amount), readable(rate));
        if let Some(length) = self.length
            && position > self.begin
        {
            let done = (position - self.begin) as f64;
            let left = elapsed * (length.saturating_sub(position) as f64 / done);
            text += &format!("  ETA {}", readable_time(left as u64));
        }
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.set_position(position);
            }
            None => {
                let share =
                    self.length.filter(|&length| length > 0).map_or_else(String::new, |length| {
                        format!("  {} %", position.saturating_mul(100) / length)
                    });
                self.output.remark(format_args!("{}{share}  {text}", self.label));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Seconds as `4:28` or `1:04:28`.
fn readable_time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}
