//! Records as one HTML page that needs nothing but itself: no script, no font, no address.
//!
//! Invariant: every text of a record is escaped on its way into the page, by [`Escaped`] or by the library
//! that draws the charts.
//!
//! Where to read next: `html/timeline.rs` and `html/percentiles.rs` for what the charts show, `html/chart.rs`
//! for how a chart is drawn.

mod axis;
mod chart;
mod escaped;
mod percentiles;
#[cfg(test)]
mod tests;
mod timeline;

use std::fmt::Write;

use self::chart::Drawing;
use self::escaped::Escaped;
use crate::record::Record;
use crate::tables;
use text_table::Table;

const STYLE: &str = include_str!("../assets/page.css");

/// The page: for each scenario the runs beside each other, with tables and charts. Runs of a scenario are
/// told apart by their labels.
#[must_use]
pub fn page(title: &str, records: &[Record]) -> String {
    let groups = groups(records);
    let mut body = format!("<h1>{}</h1>\n", Escaped(title));
    if groups.is_empty() {
        body += "<p>No runs.</p>\n";
    }
    if groups.len() > 1 {
        push_overview(&mut body, &groups);
    }
    for (index, group) in groups.iter().enumerate() {
        push_scenario(&mut body, index, group);
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n\
         </html>\n",
        Escaped(title)
    )
}

/// The name to show: something that a link can be followed by.
fn scenario(record: &Record) -> &str {
    match record.scenario.as_str() {
        "" => "unnamed scenario",
        name => name,
    }
}

/// The records of each scenario; scenarios in the order in which they first appear.
fn groups(records: &[Record]) -> Vec<Vec<&Record>> {
    let mut groups: Vec<Vec<&Record>> = Vec::new();
    for record in records {
        let same = |group: &&mut Vec<&Record>| group[0].scenario == record.scenario;
        match groups.iter_mut().find(same) {
            Some(group) => group.push(record),
            None => groups.push(vec![record]),
        }
    }
    groups
}

fn push_overview(html: &mut String, groups: &[Vec<&Record>]) {
    let headers = tables::OVERVIEW.iter().map(|column| column.header);
    html.push_str("<div class=\"scroll\"><table class=\"overview\">\n<thead><tr><th>scenario</th><th>run</th>");
    for header in headers {
        push(html, format_args!("<th>{}</th>", Escaped(header)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (index, group) in groups.iter().enumerate() {
        for record in group {
            push(
                html,
                format_args!(
                    "<tr><td><a href=\"#scenario-{index}\">{}</a></td><td>{}</td>",
                    Escaped(scenario(record)),
                    Escaped(&record.label)
                ),
            );
            for column in &tables::OVERVIEW {
                push_cell(html, &(column.measured)(record));
            }
            html.push_str("</tr>\n");
        }
    }
    html.push_str("</tbody>\n</table></div>\n");
}

fn push_scenario(html: &mut String, index: usize, records: &[&Record]) {
    push(html, format_args!("<section id=\"scenario-{index}\">\n"));
    push(
        html,
        format_args!("<h2>{}</h2>\n", Escaped(scenario(records[0]))),
    );
    push_readings(html, records);
    push_warnings(html, records);
    push_table(html, "results", &tables::wide_results(records));
    push_sources(html, records);
    push_legend(html, records);
    html.push_str("<div class=\"charts\">\n");
    for drawing in timeline::drawings(records) {
        push_drawing(html, &drawing);
    }
    html.push_str("</div>\n<h3>Latency</h3>\n<div class=\"beside\">\n");
    push_table(html, "", &tables::latencies(records));
    if let Some(drawing) = percentiles::drawing(records) {
        push_drawing(html, &drawing);
    }
    html.push_str("</div>\n<h3>Messages</h3>\n");
    push_table(html, "", &tables::counts(records));
    if let Some(shards) = tables::shards(records) {
        push_table(html, "", &shards);
    }
    if let Some(parts) = tables::parts(records) {
        push_table(html, "", &parts);
    }
    if let Some(publishers) = tables::publishers(records) {
        push_table(html, "", &publishers);
    }
    if let Some(traffic) = tables::traffic(records) {
        push_table(html, "", &traffic);
    }
    html.push_str("<h3>Resources of the broker, CPU of the tool</h3>\n");
    if let Some(resources) = tables::resources(records) {
        push_table(html, "", &resources);
    }
    push_table(html, "", &tables::cpu(records));
    html.push_str("<h3>Settings and machine</h3>\n");
    push_table(html, "text", &tables::circumstances(records));
    html.push_str("</section>\n");
}

/// How the scenario was read: once, if all runs agree.
fn push_readings(html: &mut String, records: &[&Record]) {
    let first = &records[0].reading;
    if records.iter().all(|record| record.reading == *first) {
        push(
            html,
            format_args!("<p class=\"reading\">{}</p>\n", Escaped(first)),
        );
        return;
    }
    for record in records {
        push(
            html,
            format_args!(
                "<p class=\"reading\"><b>{}</b>: {}</p>\n",
                Escaped(&record.label),
                Escaped(&record.reading)
            ),
        );
    }
}

fn push_warnings(html: &mut String, records: &[&Record]) {
    for record in records {
        for warning in &record.warnings {
            push(
                html,
                format_args!(
                    "<p class=\"warning\"><b>{}</b>: {}</p>\n",
                    Escaped(&record.label),
                    Escaped(warning)
                ),
            );
        }
    }
}

/// Where the published rows are from, without which their figures would seem to be of this machine.
fn push_sources(html: &mut String, records: &[&Record]) {
    for row in tables::published(records) {
        let parts = [&row.source, &row.section, &row.note];
        let parts: Vec<&str> = parts
            .map(String::as_str)
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        push(
            html,
            format_args!(
                "<p class=\"note\">Published, {} {}: {}</p>\n",
                Escaped(&row.product),
                Escaped(&row.version),
                Escaped(&parts.join("; "))
            ),
        );
    }
}

fn push_legend(html: &mut String, records: &[&Record]) {
    html.push_str("<p class=\"legend\">");
    for (index, record) in records.iter().enumerate() {
        push(
            html,
            format_args!(
                "<span><i style=\"background:{}\"></i>{}</span>",
                chart::css_color(index),
                Escaped(&record.label)
            ),
        );
    }
    html.push_str("<span class=\"note\">shaded: warm-up</span></p>\n");
}

fn push_drawing(html: &mut String, drawing: &Drawing) {
    push(
        html,
        format_args!(
            "<figure>\n<h4>{} <small>{}</small></h4>\n{}<figcaption>{}</figcaption>\n</figure>\n",
            Escaped(&drawing.title),
            Escaped(&drawing.unit),
            drawing.svg,
            Escaped(&drawing.caption)
        ),
    );
}

fn push_table(html: &mut String, class: &str, table: &Table) {
    if table.rows().is_empty() {
        return;
    }
    push(
        html,
        format_args!("<div class=\"scroll\"><table class=\"{class}\">\n<thead><tr>"),
    );
    for header in table.header() {
        push(html, format_args!("<th>{}</th>", Escaped(header)));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in table.rows() {
        html.push_str("<tr>");
        for column in 0..table.header().len() {
            push_cell(html, row.get(column).map_or("", String::as_str));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
}

fn push_cell(html: &mut String, text: &str) {
    push(html, format_args!("<td>{}</td>", Escaped(text)));
}

fn push(html: &mut String, arguments: std::fmt::Arguments<'_>) {
    html.write_fmt(arguments)
        .expect("a string takes whatever is written to it");
}
