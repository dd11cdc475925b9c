package serve

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/otlp"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// A setting is a field of one of the parts of serveConfig, with its name in the tags, and a row of serveOptions.
// Flags, variables, the example file and the errors are made from these two, by reflection.

// serveConfig says what a node is. A key of the file has the name of its flag. Its parts are by what they
// are about; in a file, and printed, all keys are on one level.
type serveConfig struct {
	Addresses
	Joining
	Access
	Encryption
	Seeds
	Timing
	Compaction
	Limits
	Diagnostics
}

// Addresses are where a node's data is and where it is reached.
type Addresses struct {
	ID      string `toml:"id" json:"id"` // permanent; the marker of the data folder has it, too
	DataDir string `toml:"data-dir" json:"data-dir"`
	// for clients and the other nodes
	HTTP string `toml:"http" json:"http"` // host:port, as all below
	// for raft's own protocol between nodes
	Raft          string `toml:"raft" json:"raft"`
	AdvertiseHTTP string `toml:"advertise-http" json:"advertise-http"` // "" is HTTP
	AdvertiseRaft string `toml:"advertise-raft" json:"advertise-raft"` // "" is Raft
}

// Joining is how a node comes into a cluster.
type Joining struct {
	BootstrapExpect int      `toml:"bootstrap-expect" json:"bootstrap-expect"` // voters of a new cluster; 0 forms none
	Join            []string `toml:"join" json:"join"`                         // URLs
	NonVoter        bool     `toml:"non-voter" json:"non-voter"`               // join without a vote
}

// Access is who may talk to a node.
type Access struct {
	Insecure bool `toml:"insecure" json:"insecure"` // allow addresses that others reach without a token
	// by which clients may call the node besides its addresses, if there is no token
	AllowHosts []string `toml:"allow-host" json:"allow-host"` // names
	TokenFile  string   `toml:"token-file" json:"token-file"` // holds the cluster token
}

// Encryption is how a node's two ports, and its calls of others, are secured.
type Encryption struct {
	TLSCert string `toml:"tls-cert" json:"tls-cert"` // files in PEM; none is no TLS
	TLSKey  string `toml:"tls-key" json:"tls-key"`   // which others must not be able to read
	TLSCA   string `toml:"tls-ca" json:"tls-ca"`     // which has signed the certificates of all nodes and clients
	TLSMode string `toml:"tls-mode" json:"tls-mode"` // off, allow or require; "" is require with a certificate
}

// Seeds are settings of a new cluster. One that exists keeps its own.
type Seeds struct {
	Reserved string `toml:"reserved" json:"reserved"`                   // catalogue.reserved
	Strict   bool   `toml:"validation-strict" json:"validation-strict"` // validation.strict
}

// Timing is when a node considers another one gone.
type Timing struct {
	// without contact for that long a follower starts an election
	Heartbeat    interval `toml:"heartbeat" json:"heartbeat"`
	Election     interval `toml:"election-timeout" json:"election-timeout"` // 0 is Heartbeat
	Lease        interval `toml:"leader-lease" json:"leader-lease"`         // 0 is three quarters of Heartbeat
	PingInterval interval `toml:"ping-interval" json:"ping-interval"`       // of each other member
	PingMisses   int      `toml:"ping-misses" json:"ping-misses"`           // that make a member unreachable
}

// Compaction is when the raft log is compacted: every CompactEvery if there are CompactEntries new entries, and at
// once after CompactBytes new bytes. TrailingEntries and TrailingBytes bound what is kept for lagging members.
type Compaction struct {
	CompactEvery    interval `toml:"raft-compact-interval" json:"raft-compact-interval"`
	CompactEntries  int      `toml:"raft-compact-entries" json:"raft-compact-entries"` // since the last compaction
	TrailingEntries int      `toml:"raft-trailing-entries" json:"raft-trailing-entries"`
	CompactBytes    int      `toml:"raft-compact-bytes" json:"raft-compact-bytes"`
	TrailingBytes   int      `toml:"raft-trailing-bytes" json:"raft-trailing-bytes"`
}

// Limits are the bounds above which a node refuses requests; DiskMinFree is one below which it does.
type Limits struct {
	QueueRequests int `toml:"queue-requests" json:"queue-requests"` // unanswered, while the node leads
	QueueBytes    int `toml:"queue-bytes" json:"queue-bytes"`       // of those requests
	DiskMinFree   int `toml:"disk-min-free" json:"disk-min-free"`   // 0 is a share of the volume
}

// Diagnostics are what a node writes about itself.
type Diagnostics struct {
	CPUProfile string `toml:"cpu-profile" json:"cpu-profile"` // a file; "" is none
	// the base URL of an OpenTelemetry collector; "" exports nothing
	OTLPEndpoint string `toml:"otlp-endpoint" json:"otlp-endpoint"`
	// trace, debug, info, warn or error
	LogLevel string `toml:"log-level" json:"log-level"`
	LogJSON  bool   `toml:"log-json" json:"log-json"`
}

// interval is a duration that reads and prints as 1s. It is a struct, so a file's bare
// number is not taken for nanoseconds.
type interval struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *interval) UnmarshalText(text []byte) error {
	// The form of Go's durations, as in flags.
	d, err := time.ParseDuration(string(text))
	i.Duration = d
	return err
}

// outside reports a duration that is not from least to most.
func (i interval) outside(least, most time.Duration) bool {
	return i.Duration < least || i.Duration > most
}

// MarshalText implements encoding.TextMarshaler.
func (i interval) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// serveDefaults returns the configuration without flags, variables or a file.
// Flags show these as their defaults.
func serveDefaults() serveConfig {
	// Zero values are defaults, too: 0 and "" mean what the fields' comments say.
	return serveConfig{
		Addresses: Addresses{HTTP: "127.0.0.1:8770", Raft: "127.0.0.1:9770"},
		Seeds:     Seeds{Reserved: "refuse"},
		Timing: Timing{Heartbeat: interval{time.Second}, PingInterval: interval{500 * time.Millisecond},
			PingMisses: 3},
		Compaction: Compaction{CompactEvery: interval{30 * time.Second}, CompactEntries: 16384, TrailingEntries: 10240,
			CompactBytes: 64 << 20, TrailingBytes: 1 << 30},
		Limits:      Limits{QueueRequests: 32768, QueueBytes: 64 << 20},
		Diagnostics: Diagnostics{LogLevel: "info"},
	}
}

// serveOption is one setting: the field of the same name, its flag, and its RINGLOG_* variable.
type serveOption struct {
	// of the flag; name is the key of the file, too
	name, usage string
	alsoEnv     string // another variable; "" is none
}

// serveOptions lists the settings in the order of the help.
func serveOptions() []serveOption {
	// Address and data, forming and joining, access, settings of a new cluster, times, the raft log, limits, diagnostics.
	return []serveOption{
		// Who the node is, and where it is reached.
		{"id", "permanent `ID` of the node", ""},
		{"data-dir", "`DIR` for the node's data", ""},
		{"http", "`ADDR` at which clients and other nodes are served", ""},
		{"raft", "`ADDR` for raft", ""},
		{"advertise-http", "`ADDR` at which others reach --http", ""},
		{"advertise-raft", "`ADDR` at which others reach --raft", ""},
		// How it comes into a cluster, and who may talk to it.
		{"bootstrap-expect", "form a new cluster of `N` voters once they see each other", ""},
		{"join", "comma-separated `URL`s of other nodes", ""},
		{"non-voter", "join as a non-voter", ""},
		{"insecure", "allow addresses other than loopback without a cluster token", ""},
		{"allow-host", "comma-separated host `NAME`s by which clients reach this node, besides its addresses " +
			"and those of --join; without a cluster token requests for other names are refused, so " +
			"that no web page reaches it through a browser", ""},
		{"tls-cert", "`FILE` with this node's certificate; it is read again when it changes, and on SIGHUP", ""},
		{"tls-key", "`FILE` with the key of --tls-cert, which others must not be able to read", ""},
		{"tls-ca", "`FILE` with the CA that has signed the certificates of all nodes and clients", ""},
		{"tls-mode", "`HOW` ports are secured: off, allow (plain connections are taken, too, which protects nobody from " +
			"who can change packets: it is for the time in which a cluster moves to require) or require " +
			"(default: require with --tls-cert, else off)", ""},
		// What a new cluster begins with.
		{"reserved", "`HOW` a new cluster treats clients' events of reserved types: refuse or accept-as-foreign", ""},
		{"validation-strict", "make a new cluster refuse unknown types", "RINGRIFT_EVENT_VALIDATION_STRICT"},
		// When another node counts as gone.
		{"heartbeat", "`DURATION`: how long a follower waits without hearing from the leader before it starts an " +
			"election", ""},
		{"election-timeout", "`DURATION`: how long a candidate waits for votes, at least --heartbeat (default: " +
			"--heartbeat)", ""},
		{"leader-lease", "`DURATION`: how long a leader leads without hearing from a majority before it steps down, at " +
			"most --heartbeat; when a leader is killed, others campaign after that long (default: three " +
			"quarters of --heartbeat)", ""},
		{"ping-interval", "`DURATION`: how often this node pings every other member", ""},
		{"ping-misses", "count a member as unreachable after `N` missed pings", ""},
		// How much of the raft log is kept.
		{"raft-compact-interval", "`DURATION`: how often the raft log is checked for entries to compact", ""},
		{"raft-compact-entries", "compact after `N` new entries", ""},
		{"raft-trailing-entries", "keep `N` entries for lagging members; members that lag further receive a " +
			"snapshot", ""},
		{"raft-compact-bytes", "compact at once after `BYTES` of new entries; that many bytes of the newest entries " +
			"are kept", ""},
		{"raft-trailing-bytes", "keep `BYTES` of entries for lagging members, at least --raft-compact-bytes", ""},
		// When requests are refused.
		{"queue-requests", "hold `N` unanswered requests as leader; more are refused with 429", ""},
		{"queue-bytes", "hold `BYTES` of unanswered requests as leader; more are refused with 429", ""},
		{"disk-min-free", "free `BYTES` on the data folder's volume below which this node refuses appends " +
			"(default: 5 % of the volume, at least 64 MiB and at most 1 GiB)", ""},
		// What the node writes about itself.
		{"cpu-profile", "`FILE` for a CPU profile of the node's whole life, for go tool pprof; complete when it " +
			"stops", ""},
		{"otlp-endpoint", "base `URL` of an OpenTelemetry collector, such as http://127.0.0.1:4318, which gets spans of " +
			"publishes and deliveries over OTLP/HTTP; without it the node exports nothing, whatever OTEL_* variables say", ""},
		{"log-level", "lowest `LEVEL` to log: trace, debug, info, warn or error", "RINGRIFT_LOG_LEVEL"},
		{"log-json", "log as JSON", ""},
	}
}

// ExampleConfig is a configuration file with every key, all of them commented out but those that a node needs.
func ExampleConfig() string {
	// What is not commented out makes a node that starts as it is.
	needed := map[string]string{"id": `"n1"`, "data-dir": `"/var/lib/ringlog"`, "bootstrap-expect": "1"}
	defaults := serveDefaults()
	var b strings.Builder
	b.WriteString("# A node of ringlog. A key is a flag of ringlog serve, whose help says more; a flag, or its variable,\n" +
		"# counts more than its key. What is commented out has its default.\n")
	for _, o := range serveOptions() {
		// Each key comes after its usage, in the order of the help.
		value, is := needed[o.name]
		if !is {
			value = o.valueIn(&defaults)
		}
		b.WriteString("\n")
		for _, line := range shell.WrapText(strings.ReplaceAll(o.usage, "`", ""), 100) {
			b.WriteString("# " + line + "\n")
		}
		if !is {
			b.WriteString("# ")
		}
		b.WriteString(o.name + " = " + value + "\n")
	}
	return b.String()
}

// valueIn is an option's value in a configuration, as a file has it.
func (o serveOption) valueIn(c *serveConfig) string {
	// A type that is missing here gets the form of its value, which is not its default.
	switch v := o.field(c).(type) {
	case *string:
		return strconv.Quote(*v)
	case *[]string:
		return "[]"
	case *interval:
		return strconv.Quote(v.String())
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	default:
		return o.form()
	}
}

// field returns a pointer to an option's place in a configuration.
func (o serveOption) field(c *serveConfig) any {
	// The key in the tag is the name: a new field needs a row in serveOptions and nothing else.
	for _, f := range serveFields() {
		if f.Tag.Get("toml") == o.name {
			return reflect.ValueOf(c).Elem().FieldByIndex(f.Index).Addr().Interface()
		}
	}
	panic("serve: no field for --" + o.name)
}

// serveFields lists the fields once: each run of the program makes the flags of serve, whatever its verb.
var serveFields = sync.OnceValue(func() []reflect.StructField {
	return reflect.VisibleFields(reflect.TypeFor[serveConfig]())
})

// env lists the variables of an option; the first that is set counts.
func (o serveOption) env() []string {
	// The program's own variable comes before the platform's.
	names := []string{"RINGLOG_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))}
	if o.alsoEnv != "" {
		names = append(names, o.alsoEnv)
	}
	return names
}

// flag returns the command line's flag for an option. Values are checked by assign,
// so a wrong variable and a wrong flag get the same error.
func (o serveOption) flag() cli.Flag {
	// Text flags are used for numbers, too, so assign reports what is wrong with them.
	defaults := serveDefaults()
	switch v := o.field(&defaults).(type) {
	case *bool:
		return &cli.BoolFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
	case *string:
		return &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env(), DefaultText: *v}
	case *[]string:
		return &cli.StringSliceFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
	case *interval:
		f := &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
		if v.Duration != 0 { // else the usage says it
			f.DefaultText = v.String()
		}
		return f
	case *int:
		f := &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
		if *v != 0 { // else the usage says it
			f.DefaultText = strconv.Itoa(*v)
		}
		return f
	default:
		return &cli.StringFlag{Name: o.name, Usage: o.usage, EnvVars: o.env()}
	}
}

// form is an example of an option's value in a file.
func (o serveOption) form() string {
	// The type of the field decides, so a new option has an example, too.
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
	// The type of the field is the type of the option.
	switch field := o.field(c).(type) {
	case *string:
		*field = text
	case *bool:
		*field, err = strconv.ParseBool(text)
	case *int:
		// Options of sizes are known by the name of their value in the usage. They take units.
		if strings.Contains(o.usage, "`BYTES`") {
			var n uint64
			n, err = shell.ParseSize("--"+o.name, text)
			*field = int(n)
			return err
		}
		*field, err = strconv.Atoi(text)
	case *interval:
		err = field.UnmarshalText([]byte(text))
	case *[]string:
		*field = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	}
	// A NumError names a function of Go and repeats the text; its cause is enough.
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
	// Each layer overwrites what the one before has set.
	c := serveDefaults()
	// Defaults, then the file, then variables and flags, whose order set knows.
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

// readConfigFile reads a file into c. Its errors name file, line and remedy.
func readConfigFile(c *serveConfig, file string, content []byte) error {
	// Unknown keys are errors: a misspelt key would silently keep its default.
	d := toml.NewDecoder(bytes.NewReader(content)).DisallowUnknownFields()
	err := d.Decode(c)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	// An error of UnmarshalText has no place. The file is read again for one that has.
	if err != nil && !errors.As(err, &unknown) && !errors.As(err, &wrong) {
		err = errors.Join(unquotedInterval(content), err)
	}
	switch {
	case errors.As(err, &unknown):
		// Every unknown key is named with its line, and the nearest key that exists.
		var lines []string
		for _, e := range unknown.Errors {
			line, _ := e.Position()
			name := strings.Join(e.Key(), ".")
			lines = append(lines, fmt.Sprintf("%s:%d: there is no key %q%s", file, line, name, nearKey(name)))
		}
		return shell.Usagef("%s", strings.Join(lines, "\n"))
	case errors.As(err, &wrong):
		return decodeProblem(file, content, wrong)
	case err != nil:
		return shell.Usagef("%s: %w", file, err)
	}
	return nil
}

// unquotedInterval returns an error with the place of an interval that is no string in the file; the
// decoder's own error has no place.
func unquotedInterval(content []byte) error {
	// Only the keys that are durations: all others are skipped.
	var intervals struct {
		Heartbeat    string `toml:"heartbeat"`
		Election     string `toml:"election-timeout"`
		Lease        string `toml:"leader-lease"`
		PingInterval string `toml:"ping-interval"`
		CompactEvery string `toml:"raft-compact-interval"`
	}
	return toml.Unmarshal(content, &intervals)
}

// decodeProblem names the place and, if a key's value is wrong, the form it has.
func decodeProblem(file string, content []byte, e *toml.DecodeError) error {
	// The library's text names types of Go; the form of the value says more to people.
	line, column := e.Position()
	message := strings.TrimPrefix(e.Error(), "toml: ")
	for _, o := range serveOptions() {
		// Only errors about the value of a known key are rewritten.
		if len(e.Key()) == 0 || e.Key()[0] != o.name || strings.HasPrefix(message, "key ") {
			continue
		}
		if strings.HasPrefix(message, "cannot ") { // the rest is about types of Go
			message = "the value is of the wrong type"
		}
		return shell.Usagef("%s:%d: %s: %s: write %s = %s", file, line, o.name, message, o.name, o.form())
	}
	// A line that is no TOML has no key for the library.
	if remedy := rewritten(content, line); remedy != "" {
		return shell.Usagef("%s:%d:%d: %s: write %s", file, line, column, message, remedy)
	}
	return shell.Usagef("%s:%d:%d: %s", file, line, column, message)
}

// rewritten returns a line that cannot be read as it should be, "" if that is not known.
func rewritten(content []byte, line int) string {
	lines := strings.Split(string(content), "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	name, value, _ := strings.Cut(lines[line-1], "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	for _, o := range serveOptions() {
		// Without a known key nothing can be proposed.
		if o.name != name {
			continue
		}
		// Most often the quotes of a string are missing.
		if strings.HasPrefix(o.form(), `"`) && value != "" && !strings.ContainsAny(value, `"'#\`) {
			return fmt.Sprintf("%s = %q (strings need quotes)", name, value)
		}
		return name + " = " + o.form()
	}
	return ""
}

// nearKey suggests a key for one that does not exist.
func nearKey(name string) string {
	// All keys are candidates, as all are in one level.
	var names []string
	for _, o := range serveOptions() {
		names = append(names, o.name)
	}
	return shell.DidYouMean(name, names, "")
}

// validate checks what can be checked without touching the network; hasToken says
// whether there is a cluster token.
func (c *serveConfig) validate(hasToken bool) error {
	// The node, its folder and how it comes into a cluster.
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
		return shell.Usagef("--bootstrap-expect %d must not be negative", c.BootstrapExpect)
	case c.NonVoter && c.BootstrapExpect > 0:
		return shell.Usagef("--non-voter and --bootstrap-expect exclude each other: a non-voter joins a cluster, " +
			"it does not form one")
	case c.BootstrapExpect > 1 && len(c.Join) == 0:
		return shell.Usagef("--bootstrap-expect %d needs --join with the URLs of the other nodes", c.BootstrapExpect)
	case c.Reserved != "refuse" && c.Reserved != "accept-as-foreign":
		return shell.Usagef("--reserved %q: use refuse or accept-as-foreign", c.Reserved)
	case hclog.LevelFromString(c.LogLevel) == hclog.NoLevel:
		return shell.Usagef("--log-level %q: use trace, debug, info, warn or error", c.LogLevel)
	}
	// Then the bounds of each part, and the addresses, whose check depends on whether there is a token.
	for _, check := range []func() error{c.Encryption.validate, c.Compaction.validate, c.Timing.validate,
		c.Limits.validate} {
		if err := check(); err != nil {
			return err
		}
	}
	// It also makes the URLs of --join those of endpoints.
	if err := c.validateAddresses(hasToken); err != nil {
		return err
	}
	if c.OTLPEndpoint != "" {
		if _, err := otlp.CheckEndpoint(c.OTLPEndpoint); err != nil {
			return shell.Usagef("--otlp-endpoint: %w", err)
		}
	}
	// A new folder names no cluster: the node has to form one or join one.
	if c.fresh() && c.BootstrapExpect == 0 && len(c.Join) == 0 {
		return shell.Usagef("%s is a new data folder: pass --bootstrap-expect 1 for a single node, or --join "+
			"with the URLs of a cluster", c.DataDir)
	}
	return nil
}

// mode returns how connections are secured.
func (e *Encryption) mode() certs.Mode {
	// Who names a certificate wants it used.
	if e.TLSMode == "" && e.TLSCert+e.TLSKey+e.TLSCA != "" {
		return certs.Require
	}
	return cmp.Or(certs.Mode(e.TLSMode), certs.Off)
}

// validate refuses an unknown mode, and a mode without its files. What is in them is read later.
func (e *Encryption) validate() error {
	mode := e.mode()
	if !slices.Contains([]certs.Mode{certs.Off, certs.Allow, certs.Require}, mode) {
		return shell.Usagef("--tls-mode %q: use off, allow or require", e.TLSMode)
	}
	if mode == certs.Off {
		return nil
	}
	// allow and require need all three: a node is a client of the other nodes, too.
	for _, f := range []struct{ flag, file string }{{"cert", e.TLSCert}, {"key", e.TLSKey}, {"ca", e.TLSCA}} {
		if f.file == "" {
			return shell.Usagef("--tls-%s is missing: TLS needs --tls-cert, --tls-key and --tls-ca, which ringlog cert "+
				"makes; without TLS: --tls-mode off", f.flag)
		}
	}
	return nil
}

// validate refuses figures out of bounds. What is kept for lagging members is at least what starts a compaction.
func (c *Compaction) validate() error {
	// The least and the most that work: beyond them a node compacts all the time, or never.
	switch {
	case c.CompactEvery.Duration <= 0, c.CompactEntries < 1, c.TrailingEntries < 1:
		return shell.Usagef("--raft-compact-interval, --raft-compact-entries and --raft-trailing-entries must be " +
			"positive")
	case c.CompactBytes < 1<<20, c.CompactBytes > 64<<30:
		return shell.Usagef("--raft-compact-bytes %d: use %d (1 MiB) to %d (64 GiB)", c.CompactBytes, 1<<20, 64<<30)
	case c.TrailingBytes < c.CompactBytes, c.TrailingBytes > 1<<40:
		return shell.Usagef("--raft-trailing-bytes %d: use %d (--raft-compact-bytes) to %d (1 TiB)",
			c.TrailingBytes, c.CompactBytes, 1<<40)
	}
	return nil
}

// validate refuses times out of bounds or order: lease <= heartbeat <= election timeout. What is not set is checked
// with the value that follows from the heartbeat.
func (c *Timing) validate() error {
	switch {
	// The bounds of the other two refer to the heartbeat.
	case c.Heartbeat.outside(50*time.Millisecond, time.Minute):
		return shell.Usagef("--heartbeat %s: use 50ms to 1m", c.Heartbeat)
	case interval{c.electionTimeout()}.outside(c.Heartbeat.Duration, time.Minute):
		return shell.Usagef("--election-timeout %s: use %s (--heartbeat) to 1m", c.Election, c.Heartbeat)
	case interval{c.leaderLease()}.outside(25*time.Millisecond, c.Heartbeat.Duration):
		return shell.Usagef("--leader-lease %s: use 25ms to %s (--heartbeat), so that a leader steps down before "+
			"another is elected", c.Lease, c.Heartbeat)
	case c.PingInterval.outside(50*time.Millisecond, 10*time.Second):
		return shell.Usagef("--ping-interval %s: use 50ms to 10s", c.PingInterval)
	case c.PingMisses < 2, c.PingMisses > 20:
		return shell.Usagef("--ping-misses %d: use 2 to 20; a single ping may always be late", c.PingMisses)
	}
	return nil
}

// validate refuses limits out of bounds; DiskMinFree alone may be 0.
func (c *Limits) validate() error {
	switch {
	// A queue of 0 would refuse everything.
	case c.QueueRequests < 1, c.QueueRequests > 1<<20:
		return shell.Usagef("--queue-requests %d: use 1 to %d", c.QueueRequests, 1<<20)
	case c.QueueBytes < 1<<20, c.QueueBytes > 16<<30:
		return shell.Usagef("--queue-bytes %d: use %d (1 MiB) to %d (16 GiB)", c.QueueBytes, 1<<20, 16<<30)
	case c.DiskMinFree != 0 && (c.DiskMinFree < 1<<20 || c.DiskMinFree > 1<<40):
		return shell.Usagef("--disk-min-free %d: use %d (1 MiB) to %d (1 TiB), or 0 for 5 %% of the volume",
			c.DiskMinFree, 1<<20, 1<<40)
	}
	return nil
}

// electionTimeout returns how long a candidate waits for votes.
func (c *Timing) electionTimeout() time.Duration {
	return cmp.Or(c.Election.Duration, c.Heartbeat.Duration)
}

// leaderLease returns how long a leader leads without hearing from a majority.
func (c *Timing) leaderLease() time.Duration {
	return cmp.Or(c.Lease.Duration, c.Heartbeat.Duration*3/4)
}

// fresh reports whether no node has used the data folder yet.
func (c *serveConfig) fresh() bool {
	// The marker is the first file of a node.
	_, err := os.Stat(filepath.Join(c.DataDir, datadir.MarkerFile))
	return errors.Is(err, os.ErrNotExist)
}

// isFile reports whether no folder can be made at path, because path or a parent of it is a file.
func isFile(path string) bool {
	// A folder that does not exist yet is made later.
	info, err := os.Stat(path)
	return (err == nil && !info.IsDir()) || errors.Is(err, syscall.ENOTDIR)
}

// validateAddresses checks that others can reach the node, and that nobody reaches one without a token.
func (c *serveConfig) validateAddresses(hasToken bool) error {
	// Both ports follow the same rules.
	for _, a := range []struct{ flag, bind, advertise string }{{"http", c.HTTP, c.AdvertiseHTTP},
		{"raft", c.Raft, c.AdvertiseRaft}} {
		host, err := shell.HostOf(a.flag, a.bind)
		if err != nil {
			return err
		}
		// A caller that reaches the port may do everything: if others than this machine do, there must be a token.
		if !isLoopback(host) && !hasToken && !c.Insecure {
			return shell.Usagef("--%s %s is reachable by others, and there is no cluster token: set "+
				"RINGRIFT_CLUSTER_AUTH_TOKEN or --token-file on all nodes, or pass --insecure", a.flag, a.bind)
		}
		// Others cannot dial a wildcard.
		if a.advertise == "" && isWildcard(host) {
			return shell.Usagef("--%s %s listens on all addresses: set --advertise-%s to the one at which others "+
				"reach it", a.flag, a.bind, a.flag)
		}
		if a.advertise == "" {
			continue
		}
		host, err = shell.HostOf("advertise-"+a.flag, a.advertise)
		if err != nil {
			return err
		}
		if isWildcard(host) {
			return shell.Usagef("--advertise-%s %s: nobody can dial that address", a.flag, a.advertise)
		}
	}
	// The two listen on ports of their own; URLs of --join are normalized as endpoints are.
	if c.HTTP == c.Raft {
		return shell.Usagef("--http and --raft are both %s", c.HTTP)
	}
	var err error
	if len(c.Join) > 0 {
		c.Join, err = shell.ParseEndpoints(strings.Join(c.Join, ","))
	}
	return err
}

// isWildcard reports whether a host means all addresses.
func isWildcard(host string) bool { return slices.Contains([]string{"", "0.0.0.0", "::"}, host) }

// isLoopback reports whether only this machine reaches a host.
func isLoopback(host string) bool {
	// Another name may mean this machine, and is not looked up.
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}
