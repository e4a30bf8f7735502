// Command cmd explores the model's configurations: go run ./model/cmd -list
package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/valkeysync/valkeysync/model"
)

func main() {
	list := flag.Bool("list", false, "list the configurations")
	only := flag.String("run", "", "run those whose names contain one of these, separated by commas")
	most := flag.Int("max", 12_000_000, "how many states to explore of each")
	small := flag.Bool("small", false, "leave the big ones out")
	first := flag.Bool("first", false, "stop at the first violation")
	flag.Parse()
	for _, c := range model.Configs() {
		if *only != "" && !slices.ContainsFunc(strings.Split(*only, ","), func(s string) bool { return strings.Contains(c.Name, s) }) {
			continue
		}
		if *small && c.Big {
			continue
		}
		if *list {
			fmt.Println(c.Name)
			continue
		}
		r := model.Explore(c, *most, *first)
		fmt.Printf("%-60s states=%d depth=%d whole=%v served=%d left=%d %v\n", c.Name, r.States, r.Depth, r.Whole, r.Served, r.Left, r.Duration.Round(time.Millisecond))
		for v, way := range r.Found {
			fmt.Printf("  %s, in %d steps:\n", strings.ToUpper(string(v)), len(way))
			for i, line := range way {
				fmt.Printf("   %2d %s\n", i+1, line)
			}
		}
	}
}
