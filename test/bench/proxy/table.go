package main

import (
	"fmt"
	"io"
)

// goal is what the resolver's figure must be beside another's, or by itself where
// that has no name.
type goal struct {
	unit, beside string
	// at least the bound, or at most.
	least bool
	bound float64
}

var goals = []goal{
	{"bulk_tcp_bytes_per_second", "haproxy", true, 1.5},
	{"bulk_tcp_cpu_seconds_per_gb", "haproxy", false, 0.35},
	{"ping_pongs_per_second", "haproxy", true, 1},
	{"ping_pong_p99_microseconds", "haproxy", false, 1.1},
	{"ping_pong_cpu_seconds_per_100k", "haproxy", false, 1.25},
	{"paced_ping_pong_p99_microseconds", "haproxy", false, 1.1},
	{"connection_setups_per_second", "haproxy", true, 0.9},
	{"connection_setup_cpu_seconds_per_100k", "haproxy", false, 1.5},
	{"udp_echoes_per_second", "nginx", true, 1.3},
	{"udp_cpu_seconds_per_100k", "nginx", false, 0.9},
	{"udp_echoes_per_second", "nginx_one_worker", true, 1.3},
	{"udp_cpu_seconds_per_100k", "nginx_one_worker", false, 0.9},
	{"udp_paced_lost_percent", "", false, 0},
	{"idle_tcp_port_bytes", "", false, 8 << 10},
	{"idle_udp_port_bytes", "", false, 8 << 10},
	{"held_connection_bytes", "", false, 6 << 10},
	{"wake_fan_in_lost_connections", "", false, 0},
}

// show prints the medians as a table, and then what is to be reached.
func show(w io.Writer, medians map[string]figures, o options) {
	fmt.Fprintf(w, "medians of %d rounds of %s:\n%-40s", o.rounds, o.duration, "")
	for _, p := range proxies {
		fmt.Fprintf(w, " %16s", p.name)
	}
	fmt.Fprintln(w)
	for _, unit := range sortedKeys(medians) {
		fmt.Fprintf(w, "%-40s", unit)
		for _, p := range proxies {
			text := "-"
			if value, ok := medians[unit][p.name]; ok {
				text = short(value)
			}
			fmt.Fprintf(w, " %16s", text)
		}
		fmt.Fprintln(w)
	}
	for _, unit := range sortedKeys(medians) {
		is, was := medians[unit]["resolver"], medians[unit][before.name]
		if was != 0 {
			fmt.Fprintf(w, "%-48s %10s\n", unit+" / before", short(is/was))
		}
	}
	fmt.Fprintf(w, "\n%-40s %12s %12s\n", "the resolver's", "is", "wanted")
	for _, g := range goals {
		is, ok := g.reached(medians)
		if !ok {
			continue
		}
		order, enough := "at most", is <= g.bound
		if g.least {
			order, enough = "at least", is >= g.bound
		}
		what, missed := g.unit, ""
		if g.beside != "" {
			what += " / " + g.beside
		}
		if !enough {
			missed = "  MISSED"
		}
		fmt.Fprintf(w, "%-48s %10s   %s %s%s\n", what, short(is), order, short(g.bound), missed)
	}
}

// reached is what the goal's bound is for; false: that was not measured.
func (g goal) reached(medians map[string]figures) (float64, bool) {
	is, ok := medians[g.unit]["resolver"]
	if g.beside == "" || !ok {
		return is, ok
	}
	beside, ok := medians[g.unit][g.beside]
	return per(is, beside), ok
}

func short(value float64) string {
	switch {
	case value >= 1e9:
		return fmt.Sprintf("%.2fG", value/1e9)
	case value >= 1e6:
		return fmt.Sprintf("%.2fM", value/1e6)
	case value >= 1000:
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}
