package serve

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// serveConfig says what a node is. A key of the file has the name of its flag.
type serveConfig struct {
	ID              string   `toml:"id" json:"id"`
	DataDir         string   `toml:"data-dir" json:"data-dir"`
	HTTP            string   `toml:"http" json:"http"` // host:port
	Raft            string   `toml:"raft" json:"raft"`
	AdvertiseHTTP   string   `toml:"advertise-http" json:"advertise-http"`
	AdvertiseRaft   string   `toml:"advertise-raft" json:"advertise-raft"`
	BootstrapExpect int      `toml:"bootstrap-expect" json:"bootstrap-expect"`
	Join            []string `toml:"join" json:"join"` // URLs
	NonVoter        bool     `toml:"non-voter" json:"non-voter"`
	Insecure        bool     `toml:"insecure" json:"insecure"`
	AllowHosts      []string `toml:"allow-host" json:"allow-host"` // names
	TokenFile       string   `toml:"token-file" json:"token-file"`
	Reserved        string   `toml:"reserved" json:"reserved"` // seeds catalogue.reserved of a new cluster
	Strict          bool     `toml:"validation-strict" json:"validation-strict"`
	Heartbeat       interval `toml:"heartbeat" json:"heartbeat"`
	Election        interval `toml:"election-timeout" json:"election-timeout"`
	Lease           interval `toml:"leader-lease" json:"leader-lease"`
	PingInterval    interval `toml:"ping-interval" json:"ping-interval"`
	PingMisses      int      `toml:"ping-misses" json:"ping-misses"`
	CompactEvery    interval `toml:"raft-compact-interval" json:"raft-compact-interval"`
	CompactEntries  int      `toml:"raft-compact-entries" json:"raft-compact-entries"`
	TrailingEntries int      `toml:"raft-trailing-entries" json:"raft-trailing-entries"`
	CompactBytes    int      `toml:"raft-compact-bytes" json:"raft-compact-bytes"`
	TrailingBytes   int      `toml:"raft-trailing-bytes" json:"raft-trailing-bytes"`
	QueueRequests   int      `toml:"queue-requests" json:"queue-requests"`
	QueueBytes      int      `toml:"queue-bytes" json:"queue-bytes"`
	DiskMinFree     int      `toml:"disk-min-free" json:"disk-min-free"`
	CPUProfile      string   `toml:"cpu-profile" json:"cpu-profile"`
	LogLevel        string   `toml:"log-level" json:"log-level"`
	LogJSON         bool     `toml:"log-json" json:"log-json"`
}

// interval is a duration that reads and prints as 1s. It is a struct, so that a file's bare
// number is not taken for nanoseconds.
type interval struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *interval) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	i.Duration = d
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (i interval) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

func serveDefaults() serveConfig {
	return serveConfig{HTTP: "127.0.0.1:8770", Raft: "127.0.0.1:9770", Reserved: "refuse",
		Heartbeat: interval{time.Second}, PingInterval: interval{500 * time.Millisecond}, PingMisses: 3, CompactEvery: interval{30 * time.Second}, CompactEntries: 16384, TrailingEntries: 10240, CompactBytes: 64 << 20, TrailingBytes: 1 << 30, QueueRequests: 32768, QueueBytes: 64 << 20,
		LogLevel: "info"}
}

// serveOption is one setting: its flag, its RINGLOG_* variable, and its place.
type serveOption struct {
	name, usage string
	alsoEnv     []string
	field       func(*serveConfig) any
}

func serveOptions() []serveOption {
	return []serveOption{
		{"id", "`ID` of the node, its own for ever", nil, func(c *serveConfig) any { return &c.ID }},
		{"data-dir", "`DIR` for the node's data", nil, func(c *serveConfig) any { return &c.DataDir }},
		{"http", "`ADDR` for clients and the other nodes' questions", nil, func(c *serveConfig) any { return &c.HTTP }},
		{"raft", "`ADDR` for consensus", nil, func(c *serveConfig) any { return &c.Raft }},
		{"advertise-http", "`ADDR` at which others reach --http", nil, func(c *serveConfig) any { return &c.AdvertiseHTTP }},
		{"advertise-raft", "`ADDR` at which others reach --raft", nil, func(c *serveConfig) any { return &c.AdvertiseRaft }},
		{"bootstrap-expect", "form a new cluster of `N` voters once they see each other", nil, func(c *serveConfig) any { return &c.BootstrapExpect }},
		{"join", "`URL`s of other nodes, comma separated", nil, func(c *serveConfig) any { return &c.Join }},
		{"non-voter", "join without a vote", nil, func(c *serveConfig) any { return &c.NonVoter }},
		{"insecure", "allow addresses other than loopback without a cluster token", nil, func(c *serveConfig) any { return &c.Insecure }},
		{"allow-host", "`NAME`s by which clients reach this node, comma separated, beside its addresses and those of --join; without a cluster token other names are refused, so that no web page gets through a browser", nil, func(c *serveConfig) any { return &c.AllowHosts }},
		{"reserved", "clients' events of reserved types in a new cluster: refuse or accept-as-foreign", nil, func(c *serveConfig) any { return &c.Reserved }},
		{"validation-strict", "a new cluster refuses unknown types", []string{"RINGRIFT_EVENT_VALIDATION_STRICT"}, func(c *serveConfig) any { return &c.Strict }},
		{"heartbeat", "without word from a leader for so long there is an election", nil, func(c *serveConfig) any { return &c.Heartbeat }},
		{"election-timeout", "how long a candidate waits for votes, at least --heartbeat (default: as --heartbeat)", nil, func(c *serveConfig) any { return &c.Election }},
		{"leader-lease", "without word from a majority for so long a leader steps down, at most --heartbeat; with a killed leader others stand after that (default: three quarters of --heartbeat)", nil, func(c *serveConfig) any { return &c.Lease }},
		{"ping-interval", "how often this node asks every other member how it is, leader or none", nil, func(c *serveConfig) any { return &c.PingInterval }},
		{"ping-misses", "after so many --ping-interval without an answer a member is out of reach", nil, func(c *serveConfig) any { return &c.PingMisses }},
		{"raft-compact-interval", "how often the raft log is looked at for entries that nobody needs", nil, func(c *serveConfig) any { return &c.CompactEvery }},
		{"raft-compact-entries", "how many entries since the last time make it worth it", nil, func(c *serveConfig) any { return &c.CompactEntries }},
		{"raft-trailing-entries", "entries kept for members that are behind; who is further behind gets a snapshot", nil, func(c *serveConfig) any { return &c.TrailingEntries }},
		{"raft-compact-bytes", "how many bytes since the last time make it worth it, at once; of the newest entries so many stay", nil, func(c *serveConfig) any { return &c.CompactBytes }},
		{"raft-trailing-bytes", "bytes of entries kept for members that are behind, at least --raft-compact-bytes", nil, func(c *serveConfig) any { return &c.TrailingBytes }},
		{"queue-requests", "requests that this node may hold unanswered when it leads; past it they are refused with 429", nil, func(c *serveConfig) any { return &c.QueueRequests }},
		{"queue-bytes", "bytes of those requests", nil, func(c *serveConfig) any { return &c.QueueBytes }},
		{"disk-min-free", "free `BYTES` of the data folder's volume below which this node takes no appends (default: 5 % of the volume, at least 64 MiB and at most 1 GiB)", nil, func(c *serveConfig) any { return &c.DiskMinFree }},
		{"cpu-profile", "`FILE` for a CPU profile of the node's whole life, for go tool pprof; written when it stops", nil, func(c *serveConfig) any { return &c.CPUProfile }},
		{"log-level", "trace, debug, info, warn or error", []string{"RINGRIFT_LOG_LEVEL"}, func(c *serveConfig) any { return &c.LogLevel }},
		{"log-json", "diagnostics as JSON", nil, func(c *serveConfig) any { return &c.LogJSON }},
	}
}

func (o serveOption) env() []string {
	return append([]string{"RINGLOG_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))}, o.alsoEnv...)
}

// flag is the command line's side of an option. Values are checked by assign, so
// that a variable and a flag are told the same.
func (o serveOption) flag() cli.Flag {
	defaults := serveDefaults()
	switch v := o.field(&defaults).(type) {
	case *bool:
		return &cli.BoolFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
	case *string:
		return &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env(), DefaultText: *v}
	case *interval:
		f := &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
		if v.Duration != 0 { // else the usage tells it
			f.DefaultText = v.String()
		}
		return f
	case *int:
		return &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env(), DefaultText: strconv.Itoa(*v)}
	default:
		return &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
	}
}

// form is an example of an option's value in a file.
func (o serveOption) form() string {
	switch o.field(&serveConfig{}).(type) {
	case *bool:
		return "true"
	case *int:
		return "3"
	case *interval:
		return `"1s"`
	case *[]string:
		return `["http://…"]`
	default:
		return `"…"`
	}
}

// assign reads text into an option's field.
func (o serveOption) assign(c *serveConfig, text string) (err error) {
	switch field := o.field(c).(type) {
	case *string:
		*field = text
	case *bool:
		*field, err = strconv.ParseBool(text)
	case *int:
		*field, err = strconv.Atoi(text)
	case *interval:
		err = field.UnmarshalText([]byte(text))
	case *[]string:
		*field = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	}
	var number *strconv.NumError
	if errors.As(err, &number) {
		err = number.Err
	}
	if err != nil {
		return shell.Usagef("--%s %q: %w", o.name, text, err)
	}
	return nil
}

// layered reads the configuration: what set has (flags, then variables) over the file over
// the defaults. set returns the text of an option, if it is set.
func layered(file string, content []byte, set func(name string) (string, bool)) (serveConfig, error) {
	c := serveDefaults()
	if err := readConfigFile(&c, file, content); err != nil {
		return c, err
	}
	for _, o := range serveOptions() {
		if text, ok := set(o.name); ok {
			if err := o.assign(&c, text); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

func readConfigFile(c *serveConfig, file string, content []byte) error {
	d := toml.NewDecoder(bytes.NewReader(content)).DisallowUnknownFields()
	err := d.Decode(c)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	if err != nil && !errors.As(err, &unknown) && !errors.As(err, &wrong) {
		err = errors.Join(unquotedInterval(content), err)
	}
	switch {
	case errors.As(err, &unknown):
		var lines []string
		for _, e := range unknown.Errors {
			line, _ := e.Position()
			name := strings.Join(e.Key(), ".")
			lines = append(lines, fmt.Sprintf("%s:%d: there is no key %q%s", file, line, name, nearKey(name)))
		}
		return shell.Usagef("%s", strings.Join(lines, "\n"))
	case errors.As(err, &wrong):
		return decodeProblem(file, wrong)
	case err != nil:
		return shell.Usagef("%s: %w", file, err)
	}
	return nil
}

// unquotedInterval finds the interval that a file gives as a number or the like, which the
// decoder reports without its place.
func unquotedInterval(content []byte) error {
	var intervals struct {
		Heartbeat    string `toml:"heartbeat"`
		Election     string `toml:"election-timeout"`
		Lease        string `toml:"leader-lease"`
		PingInterval string `toml:"ping-interval"`
		CompactEvery string `toml:"raft-compact-interval"`
	}
	return toml.Unmarshal(content, &intervals)
}

// decodeProblem names the place and, where a key's value is wrong, the form it has.
func decodeProblem(file string, e *toml.DecodeError) error {
	line, column := e.Position()
	message := strings.TrimPrefix(e.Error(), "toml: ")
	for _, o := range serveOptions() {
		if len(e.Key()) == 0 || e.Key()[0] != o.name || strings.HasPrefix(message, "key ") {
			continue
		}
		if strings.HasPrefix(message, "cannot ") { // it goes on about types of Go
			message = "the value is of the wrong type"
		}
		return shell.Usagef("%s:%d: %s: %s: write %s = %s", file, line, o.name, message, o.name, o.form())
	}
	return shell.Usagef("%s:%d:%d: %s", file, line, column, message)
}

func nearKey(name string) string {
	var names []string
	for _, o := range serveOptions() {
		names = append(names, o.name)
	}
	return shell.DidYouMean(name, names, "")
}

// validate checks what can be checked without touching the network; hasToken tells
// whether there is a cluster token.
func (c *serveConfig) validate(hasToken bool) error {
	switch {
	case c.ID == "":
		return shell.Usagef("--id is required: the node's name, such as n1")
	case !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(c.ID):
		return shell.Usagef("--id %q: use up to 64 letters, digits, dots, dashes and underscores", c.ID)
	case c.DataDir == "":
		return shell.Usagef("--data-dir is required")
	case isFile(c.DataDir):
		return shell.Usagef("--data-dir %s is a file or below one: name a folder", c.DataDir)
	case c.BootstrapExpect < 0:
		return shell.Usagef("--bootstrap-expect %d: it must not be negative", c.BootstrapExpect)
	case c.NonVoter && c.BootstrapExpect > 0:
		return shell.Usagef("--non-voter and --bootstrap-expect exclude each other: a non-voter joins a cluster, it does not form one")
	case c.BootstrapExpect > 1 && len(c.Join) == 0:
		return shell.Usagef("--bootstrap-expect %d needs --join with the URLs of the other nodes", c.BootstrapExpect)
	case c.Reserved != "refuse" && c.Reserved != "accept-as-foreign":
		return shell.Usagef("--reserved %q: use refuse or accept-as-foreign", c.Reserved)
	case c.CompactEvery.Duration <= 0 || c.CompactEntries < 1 || c.TrailingEntries < 1:
		return shell.Usagef("--raft-compact-interval, --raft-compact-entries and --raft-trailing-entries must be positive")
	case c.CompactBytes < 1<<20 || c.CompactBytes > 64<<30:
		return shell.Usagef("--raft-compact-bytes %d: use %d (1 MiB) to %d (64 GiB)", c.CompactBytes, 1<<20, 64<<30)
	case c.TrailingBytes < c.CompactBytes || c.TrailingBytes > 1<<40:
		return shell.Usagef("--raft-trailing-bytes %d: use %d (--raft-compact-bytes) to %d (1 TiB)", c.TrailingBytes, c.CompactBytes, 1<<40)
	case c.Heartbeat.Duration < 50*time.Millisecond || c.Heartbeat.Duration > time.Minute:
		return shell.Usagef("--heartbeat %s: use 50ms to 1m", c.Heartbeat)
	case c.electionTimeout() < c.Heartbeat.Duration || c.electionTimeout() > time.Minute:
		return shell.Usagef("--election-timeout %s: use %s (--heartbeat) to 1m", c.Election, c.Heartbeat)
	case c.leaderLease() < 25*time.Millisecond || c.leaderLease() > c.Heartbeat.Duration:
		return shell.Usagef("--leader-lease %s: use 25ms to %s (--heartbeat), so that a leader steps down before another is elected", c.Lease, c.Heartbeat)
	case c.PingInterval.Duration < 50*time.Millisecond || c.PingInterval.Duration > 10*time.Second:
		return shell.Usagef("--ping-interval %s: use 50ms to 10s", c.PingInterval)
	case c.PingMisses < 2 || c.PingMisses > 20:
		return shell.Usagef("--ping-misses %d: use 2 to 20; a single ping may always be late", c.PingMisses)
	case c.QueueRequests < 1 || c.QueueRequests > 1<<20:
		return shell.Usagef("--queue-requests %d: use 1 to %d", c.QueueRequests, 1<<20)
	case c.QueueBytes < 1<<20 || c.QueueBytes > 16<<30:
		return shell.Usagef("--queue-bytes %d: use %d (1 MiB) to %d (16 GiB)", c.QueueBytes, 1<<20, 16<<30)
	case c.DiskMinFree != 0 && (c.DiskMinFree < 1<<20 || c.DiskMinFree > 1<<40):
		return shell.Usagef("--disk-min-free %d: use %d (1 MiB) to %d (1 TiB), or 0 for 5 %% of the volume", c.DiskMinFree, 1<<20, 1<<40)
	case hclog.LevelFromString(c.LogLevel) == hclog.NoLevel:
		return shell.Usagef("--log-level %q: use trace, debug, info, warn or error", c.LogLevel)
	}
	if err := c.validateAddresses(hasToken); err != nil {
		return err
	}
	if c.fresh() && c.BootstrapExpect == 0 && len(c.Join) == 0 {
		return shell.Usagef("%s is a new data folder: say --bootstrap-expect 1 for a single node, or --join with URLs of a cluster", c.DataDir)
	}
	return nil
}

func (c *serveConfig) electionTimeout() time.Duration {
	return cmp.Or(c.Election.Duration, c.Heartbeat.Duration)
}

func (c *serveConfig) leaderLease() time.Duration {
	return cmp.Or(c.Lease.Duration, c.Heartbeat.Duration*3/4)
}

// fresh reports a data folder that no node has used yet.
func (c *serveConfig) fresh() bool {
	_, err := os.Stat(filepath.Join(c.DataDir, datadir.MarkerFile))
	return errors.Is(err, os.ErrNotExist)
}

// isFile reports a path that no folder can be made at, because it or what is above it is a file.
func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir() || errors.Is(err, syscall.ENOTDIR)
}

func (c *serveConfig) validateAddresses(hasToken bool) error {
	for _, a := range []struct{ flag, bind, advertise string }{{"http", c.HTTP, c.AdvertiseHTTP}, {"raft", c.Raft, c.AdvertiseRaft}} {
		host, err := shell.HostOf(a.flag, a.bind)
		if err != nil {
			return err
		}
		if !isLoopback(host) && !hasToken && !c.Insecure {
			return shell.Usagef("--%s %s can be reached by others, and there is no cluster token: set RINGRIFT_CLUSTER_AUTH_TOKEN or --token-file on all nodes, or say --insecure", a.flag, a.bind)
		}
		if a.advertise == "" && isWildcard(host) {
			return shell.Usagef("--%s %s listens on all addresses: say with --advertise-%s at which one others reach it", a.flag, a.bind, a.flag)
		}
		if a.advertise == "" {
			continue
		}
		if host, err = shell.HostOf("advertise-"+a.flag, a.advertise); err != nil {
			return err
		}
		if isWildcard(host) {
			return shell.Usagef("--advertise-%s %s: nobody can dial that address", a.flag, a.advertise)
		}
	}
	if c.HTTP == c.Raft {
		return shell.Usagef("--http and --raft are both %s", c.HTTP)
	}
	var err error
	if len(c.Join) > 0 {
		c.Join, err = shell.ParseEndpoints(strings.Join(c.Join, ","))
	}
	return err
}

func isWildcard(host string) bool { return slices.Contains([]string{"", "0.0.0.0", "::"}, host) }

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
