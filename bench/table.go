package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printTable writes all reports as one table for a terminal.
func printTable(w io.Writer, reports []*report) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range tableRows(reports) {
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// markdownTable is the same for the page.
func markdownTable(reports []*report) string {
	var b strings.Builder
	for i, row := range tableRows(reports) {
		if row[tableVerdict] == "MISS" {
			row[tableVerdict] = "**MISS**"
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("| --- ", len(row)) + "|\n")
		}
	}
	return b.String()
}

// tableVerdict is the column of PASS and MISS.
const tableVerdict = 4

// tableRows are one for each metric, under a head.
func tableRows(reports []*report) [][]string {
	head := []string{"", "measure", ours.name, "goal", "", "got"}
	for _, c := range contestants[1:] {
		head = append(head, c.name)
	}
	rows := [][]string{head}
	for _, r := range reports {
		for i, m := range r.Metrics {
			row := []string{"", m.Name, m.show(ours.name), "", "", ""}
			if i == 0 {
				row[0], row[1] = fmt.Sprint(r.No), r.Name+": "+m.Name
			}
			if g := m.Goal; g != nil {
				row[3], row[tableVerdict], row[5] = g.Text, "MISS", g.Got
				if g.Pass {
					row[tableVerdict] = "PASS"
				}
			}
			for _, c := range contestants[1:] {
				row = append(row, m.show(c.name))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// show is a contestant's figure, or a dash where it has none.
func (m *metric) show(name string) string {
	v, ok := m.Of[name]
	if !ok {
		return "—"
	}
	return m.Unit.show(v)
}
