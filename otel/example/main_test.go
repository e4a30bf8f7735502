package main

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
	"github.com/valkeysync/valkeysync/valkeysynctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scrape reads the metrics as Prometheus does. It leaves out what is not valkeysync's.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	delete(families, "target_info")
	return families
}

// everything is what is exposed once a lock was held, a try has failed and a wait was given up.
func everything(t *testing.T) map[string]*dto.MetricFamily {
	server := valkeysynctest.New(t)
	app, err := newApp(server.Valkey())
	require.NoError(t, err)
	defer app.locks.Close()
	held, err := app.locks.Mutex("account:1").LockContext(t.Context())
	require.NoError(t, err)
	require.False(t, app.locks.Mutex("account:1").TryLock())
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = app.locks.Mutex("account:1").LockContext(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	server.Lose("account:1")
	<-held.Done()
	rw := app.locks.RWMutex("page")
	rw.RLock()
	rw.RUnlock()
	web := httptest.NewServer(app.metrics)
	defer web.Close()
	families := scrape(t, web.URL)
	for _, f := range families {
		require.True(t, strings.HasPrefix(f.GetName(), "valkeysync_"), f.GetName())
		require.NotEmpty(t, f.GetHelp(), f.GetName())
	}
	require.EqualValues(t, 1, sum(families["valkeysync_losses_total"], "valkeysync_loss_cause", string(valkeysync.CauseDeleted)))
	require.EqualValues(t, 1, sum(families["valkeysync_wait_duration_seconds"], "error_type", "timeout"))
	return families
}

// sum is that of the family's series which have the label.
func sum(f *dto.MetricFamily, label, value string) (n float64) {
	for _, m := range f.GetMetric() {
		if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == value }) {
			n += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return n
}

func TestTheProgramIsScraped(t *testing.T) {
	server := testserver.Start(t, testserver.Valkey, "--notify-keyspace-events", "Kgxe")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, "redis://"+server.Addr(), l) }()
	url := "http://" + l.Addr().String() + "/metrics"
	limit := time.After(30 * time.Second)
	families := scrape(t, url)
	for sum(families["valkeysync_hold_duration_seconds"], "valkeysync_name", "account") == 0 {
		select {
		case <-time.After(10 * time.Millisecond):
			families = scrape(t, url)
		case <-limit:
			t.Fatal("nothing was locked within 30 s")
		}
	}
	require.EqualValues(t, 1, sum(families["valkeysync_client_count"], "valkeysync_notifications", "true"))
	stop()
	require.NoError(t, <-done)
}

// The page for operators names them as Prometheus does.
func TestTheDocumentedMetricsAreTheOnesThatAreExposed(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(valkeysync_[a-z_]*)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, row[1])
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(everything(t))), documented)
}

type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Labels      map[string]string
			Annotations map[string]string
		}
	}
}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	matchers = regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
	label    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	exposed  = regexp.MustCompile(`\bvalkeysync_\w+`)
)

// An alert on a metric that does not exist never fires.
func TestAlertsAreOnMetricsThatAreExposed(t *testing.T) {
	text, err := os.ReadFile("../alerts.yaml")
	require.NoError(t, err)
	var file rules
	require.NoError(t, yaml.Unmarshal(text, &file))
	families := everything(t)
	named := func(name string) *dto.MetricFamily {
		for _, suffix := range []string{"", "_count", "_sum", "_bucket"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && families[base] != nil {
				require.Equal(t, suffix != "", families[base].GetType() == dto.MetricType_HISTOGRAM, name)
				return families[base]
			}
		}
		return nil
	}
	seen := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			require.NotEmpty(t, r.Alert)
			require.NotEmpty(t, r.Labels["severity"], r.Alert)
			require.NotEmpty(t, r.Annotations["summary"], r.Alert)
			expr := quoted.ReplaceAllString(r.Expr, "")
			for _, m := range matchers.FindAllStringSubmatch(expr, -1) {
				for _, l := range label.FindAllStringSubmatch(m[2], -1) {
					require.Contains(t, labelsOf(named(m[1])), l[1], "%s: %s", r.Alert, m[1])
				}
			}
			var by []string
			for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
				by = append(by, strings.Split(g[1], ", ")...)
			}
			bare := matchers.ReplaceAllString(grouping.ReplaceAllString(expr, ""), "$1")
			have := []string{"job", "instance"} // Prometheus's own
			for _, name := range exposed.FindAllString(bare, -1) {
				f := named(name)
				require.NotNil(t, f, "%s: there is no %s", r.Alert, name)
				have = append(have, labelsOf(f)...)
				seen++
			}
			require.Subset(t, have, by, r.Alert)
		}
	}
	require.GreaterOrEqual(t, seen, 6)
}

func labelsOf(f *dto.MetricFamily) (names []string) {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			names = append(names, l.GetName())
		}
	}
	return names
}
