//! JSON log formats of log collectors: Elastic Common Schema, Google Cloud Logging, Logstash, Graylog.
//!
//! Each event becomes one JSON object on one line, with the keys of Besu's `--logging-format` templates.

use serde_json::{Map, Value};
use std::fmt;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime as Clock};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A JSON format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JsonFormat {
    Ecs,
    Gcp,
    Logstash,
    Gelf,
}

/// An event, before it is formatted.
struct LogRecord {
    level: Level,
    /// Seconds since 1970, and the same as text.
    seconds: f64,
    time: String,
    message: String,
    fields: Map<String, Value>,
    logger: String,
    thread: String,
}

impl JsonFormat {
    fn object(self, record: LogRecord) -> Map<String, Value> {
        let level = record.level.as_str();
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
        match self {
            Self::Ecs => {
                put("@timestamp", record.time.into());
                put("ecs.version", "1.2.0".into());
                put("log.level", level.into());
                put("message", record.message.into());
                put("process.thread.name", record.thread.into());
                put("log.logger", record.logger.into());
                put("labels", record.fields.into());
            }
            Self::Gcp => {
                // Fields are top-level keys; the keys of the format come after them and win.
                record
                    .fields
                    .into_iter()
                    .for_each(|(name, value)| put(&name, value));
                put("time", record.time.into());
                put("severity", severity(record.level).into());
                put("message", record.message.into());
                put("_thread", record.thread.into());
                put("_logger", record.logger.into());
            }
            Self::Logstash => {
                put("@version", 1.into());
                put("@timestamp", record.time.into());
                put("level", level.into());
                put("message", record.message.into());
                put("thread_name", record.thread.into());
                put("logger_name", record.logger.into());
                put("source_host", HOST.as_str().into());
                put("mdc", record.fields.into());
            }
            Self::Gelf => {
                for (name, value) in record.fields {
                    // Graylog reserves `_id`, and accepts numbers and strings only.
                    let name = if name == "id" { "field_id" } else { &name };
                    let value = match value {
                        Value::Number(_) | Value::String(_) => value,
                        other => other.to_string().into(),
                    };
                    put(&format!("_{name}"), value);
                }
                put("version", "1.1".into());
                put("host", HOST.as_str().into());
                put("short_message", record.message.into());
                put("timestamp", record.seconds.into());
                put("level", syslog(record.level).into());
                put("_thread", record.thread.into());
                put("_logger", record.logger.into());
            }
        }
        object
    }
}

/// Google's names of the levels.
fn severity(level: Level) -> &'static str {
    match level {
        Level::ERROR => "ERROR",
        Level::WARN => "WARNING",
        Level::INFO => "INFO",
        Level::DEBUG | Level::TRACE => "DEBUG",
    }
}

/// Syslog's numbers of the levels.
fn syslog(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The host name of this machine.
static HOST: LazyLock<String> = LazyLock::new(|| {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = read.ok().or_else(|| std::env::var("HOSTNAME").ok());
    let name = name.unwrap_or_default().trim().to_owned();
    match name.is_empty() {
        true => "localhost".to_owned(),
        false => name,
    }
});

impl<S, N> FormatEvent<S, N> for JsonFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let mut time = String::new();
        Clock.format_time(&mut Writer::new(&mut time))?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.unwrap_or_default().as_secs_f64();
        let record = LogRecord {
            level: *event.metadata().level(),
            seconds: (seconds * 1000.0).round() / 1000.0,
            time,
            message: fields.message,
            fields: fields.fields,
            logger: event.metadata().target().to_owned(),
            thread: std::thread::current().name().unwrap_or_default().to_owned(),
        };
        writeln!(writer, "{}", Value::Object(self.object(record)))
    }
}

/// Collects the fields of an event.
#[derive(Default)]
struct EventFields {
    message: String,
    fields: Map<String, Value>,
}

impl EventFields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => drop(self.fields.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Result, Write};
    use std::sync::{Arc, Mutex};
    use tracing_subscriber::layer::SubscriberExt;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> Result<()> {
            Ok(())
        }
    }

    /// The lines of two events.
    fn lines(format: JsonFormat) -> Vec<Value> {
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(format)
            .with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "niwaki::x", number = 7, id = true, name = "a \"b\"\n", "new {}", "head");
            tracing::warn!(message = %"late", version = 2.5, time = 1);
        });
        let bytes = written.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        let parse = |line| serde_json::from_str(line).unwrap();
        text.lines().map(parse).collect()
    }

    fn has(line: &Value, right: &[(&str, Value)]) {
        for (name, value) in right {
            assert_eq!(&line[name], value, "{name} of {line}");
        }
    }

    fn is_time(value: &Value) -> bool {
        let text = value.as_str().unwrap();
        text.starts_with("20") && text.contains('T') && text.ends_with('Z')
    }

    #[test]
    fn ecs_has_log_level_message_and_labels() {
        let [first, second] = &lines(JsonFormat::Ecs)[..] else {
            panic!("two lines");
        };
        let right = [
            ("log.level", "INFO".into()),
            ("message", "new head".into()),
            ("log.logger", "niwaki::x".into()),
            ("ecs.version", "1.2.0".into()),
        ];
        has(first, &right);
        has(
            &first["labels"],
            &[("number", 7.into()), ("name", "a \"b\"\n".into())],
        );
        assert!(is_time(&first["@timestamp"]));
        has(
            second,
            &[("log.level", "WARN".into()), ("message", "late".into())],
        );
    }

    #[test]
    fn gcp_has_severity_and_time_even_if_fields_have_these_names() {
        let [first, second] = &lines(JsonFormat::Gcp)[..] else {
            panic!("two lines");
        };
        has(first, &[("severity", "INFO".into()), ("number", 7.into())]);
        has(
            second,
            &[("severity", "WARNING".into()), ("message", "late".into())],
        );
        assert!(is_time(&first["time"]) && is_time(&second["time"]));
    }

    #[test]
    fn logstash_has_version_host_and_mdc() {
        let line = &lines(JsonFormat::Logstash)[0];
        let right = [
            ("@version", 1.into()),
            ("level", "INFO".into()),
            ("logger_name", "niwaki::x".into()),
            ("message", "new head".into()),
        ];
        has(line, &right);
        has(&line["mdc"], &[("number", 7.into())]);
        assert!(is_time(&line["@timestamp"]) && line["source_host"].is_string());
    }

    #[test]
    fn gelf_has_short_message_syslog_level_and_prefixed_fields() {
        let [first, second] = &lines(JsonFormat::Gelf)[..] else {
            panic!("two lines");
        };
        let right = [
            ("version", "1.1".into()),
            ("short_message", "new head".into()),
            ("level", 6.into()),
            ("_number", 7.into()),
            ("_field_id", "true".into()),
        ];
        has(first, &right);
        assert!(first["timestamp"].as_f64().unwrap() > 1.7e9 && first["_id"].is_null());
        has(
            second,
            &[
                ("version", "1.1".into()),
                ("level", 4.into()),
                ("_version", 2.5.into()),
            ],
        );
    }
}
