package main

import (
	"errors"
	"image/color"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a picture of one metric: bars, one for each contestant, or lines over a size that grows. Its scale
// is logarithmic, for the contestants are powers of ten apart.
type chart struct {
	File, Title string
	Unit        unit
	X           string // what that axis counts
	Bars        []bar
	Lines       map[string][]point
}

type bar struct {
	Name  string
	Value float64
}

type point struct{ X, Y float64 }

// bars is a chart of a metric in the order of the contestants.
func bars(file, title, axis string, m metric) chart {
	c := chart{File: file, Title: title, X: axis, Unit: m.Unit}
	for _, list := range [][]contestant{contestants, extras} {
		for _, who := range list {
			if v, ok := m.Of[who.name]; ok {
				c.Bars = append(c.Bars, bar{who.name, v})
			}
		}
	}
	return c
}

// lines is a chart that grows point by point.
type lines map[string][]point

func newLines() lines { return lines{} }

func (l lines) add(x float64, m metric) {
	for name, y := range m.Of {
		l[name] = append(l[name], point{x, y})
	}
}

func (l lines) chart(file, title, x string, u unit) chart {
	return chart{File: file, Title: title, X: x, Unit: u, Lines: l}
}

// empty is a chart in which there is nothing to see: nobody got so far.
func (c *chart) empty() bool {
	for _, b := range c.Bars {
		if b.Value > 0 {
			return false
		}
	}
	for _, l := range c.Lines {
		for _, pt := range l {
			if pt.X > 0 && pt.Y > 0 {
				return false
			}
		}
	}
	return true
}

// colours are one for each contestant, the same in all charts; ours is the one that stands out.
var colours = map[string]color.Color{
	ours.name:        color.RGBA{0xd9, 0x48, 0x01, 0xff},
	recipe.name:      color.RGBA{0x4d, 0x4d, 0x4d, 0xff},
	redsyncs.name:    color.RGBA{0x1f, 0x78, 0xb4, 0xff},
	redislocks.name:  color.RGBA{0x33, 0xa0, 0x2c, 0xff},
	valkeylocks.name: color.RGBA{0x6a, 0x3d, 0x9a, 0xff},
	"etcd":           color.RGBA{0xb1, 0x59, 0x28, 0xff},
}

func colourOf(name string) color.Color {
	if c, ok := colours[name]; ok {
		return c
	}
	return color.RGBA{0x99, 0x99, 0x99, 0xff}
}

// draw writes the chart as an SVG into a folder.
func (c *chart) draw(dir string) error {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Text = c.Title
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = c.X
	if c.Lines == nil {
		p.X.Label.Text += ", logarithmic"
	}
	p.BackgroundColor = color.White
	width, height := 18*vg.Centimeter, 10*vg.Centimeter
	if c.Lines != nil {
		if err := c.drawLines(p); err != nil {
			return err
		}
	} else {
		if err := c.drawBars(p); err != nil {
			return err
		}
		height = vg.Length(len(c.Bars))*0.85*vg.Centimeter + 2.9*vg.Centimeter
	}
	canvas := vgsvg.New(width, height)
	const margin = 10
	area := draw.Crop(draw.New(canvas), margin, -margin, margin, -margin)
	if c.Lines != nil { // the legend stands beside the lines
		const room = 3.2 * vg.Centimeter
		legend := p.Legend
		p.Legend = plot.NewLegend()
		legend.Top, legend.Left, legend.XOffs, legend.YOffs = true, true, vg.Points(8), -vg.Points(25)
		legend.Padding = vg.Points(4)
		legend.Draw(draw.Crop(area, width-room-2*margin, 0, 0, 0))
		area = draw.Crop(area, 0, -room, 0, 0)
	}
	p.Draw(area)
	f, err := os.Create(filepath.Join(dir, c.File+".svg"))
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(f)
	return errors.Join(err, f.Close())
}

func (c *chart) drawBars(p *plot.Plot) error {
	low, high := math.Inf(1), math.Inf(-1)
	var names []string
	rows := slices.Clone(c.Bars)
	slices.Reverse(rows) // the first at the top
	for _, b := range rows {
		if b.Value > 0 {
			low, high = min(low, b.Value), max(high, b.Value)
		}
		names = append(names, b.Name)
	}
	p.Add(&barPlot{rows: rows, unit: c.Unit, from: low / 3})
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(rows))-0.4
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = unitTicks(c.Unit)
	p.X.Min, p.X.Max = low/3, high*math.Pow(high/low*3, 0.2)
	return nil
}

// barPlot draws bars that lie, with their values at the end; plotter.BarChart knows no logarithms.
type barPlot struct {
	rows []bar
	unit unit
	from float64
}

func (b *barPlot) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := p.X.Tick.Label
	style.XAlign, style.YAlign = draw.XLeft, draw.YCenter
	style.Font.Size = font.Points(10)
	for i, r := range b.rows {
		middle, half := y(float64(i)), (y(1)-y(0))*0.36
		end := x(b.from)
		if r.Value > 0 {
			end = x(r.Value)
			c.FillPolygon(colourOf(r.Name), []vg.Point{
				{X: x(b.from), Y: middle - half}, {X: end, Y: middle - half}, {X: end, Y: middle + half}, {X: x(b.from), Y: middle + half},
			})
		}
		c.FillText(style, vg.Point{X: end + vg.Points(4), Y: middle}, b.unit.show(r.Value))
	}
}

func (c *chart) drawLines(p *plot.Plot) error {
	p.Add(plotter.NewGrid())
	for _, who := range slices.Sorted(maps.Keys(c.Lines)) {
		var xys plotter.XYs
		for _, pt := range c.Lines[who] {
			if pt.X > 0 && pt.Y > 0 {
				xys = append(xys, plotter.XY{X: pt.X, Y: pt.Y})
			}
		}
		if len(xys) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(xys)
		if err != nil {
			return err
		}
		line.Color, dots.Color, dots.Shape = colourOf(who), colourOf(who), draw.CircleGlyph{}
		if who == ours.name {
			line.Width = vg.Points(3)
		}
		p.Add(line, dots)
		p.Legend.Add(who, line, dots)
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = sizeTicks(c.sizes())
	p.Y.Tick.Marker = unitTicks(c.Unit)
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(p.Y.Min))), math.Pow(10, math.Ceil(math.Log10(p.Y.Max)))
	if p.X.Min == p.X.Max {
		p.X.Max *= 2
	}
	if p.Y.Min == p.Y.Max {
		p.Y.Max *= 10
	}
	return nil
}

// sizes are the places at which the lines were measured.
func (c *chart) sizes() []float64 {
	var all []float64
	for _, l := range c.Lines {
		for _, pt := range l {
			if !slices.Contains(all, pt.X) {
				all = append(all, pt.X)
			}
		}
	}
	slices.Sort(all)
	return all
}

// unitTicks are the powers of ten, written in the unit.
type unitTicks unit

func (u unitTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		ten := math.Pow(10, e)
		for i := 1.0; i < 10; i++ {
			if v := ten * i; v >= low*0.999 && v <= high*1.001 {
				label := ""
				if i == 1 {
					label = unit(u).show(v)
				}
				ticks = append(ticks, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ticks
}

// sizeTicks are the sizes themselves.
type sizeTicks []float64

func (s sizeTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for _, v := range s {
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return ticks
}
