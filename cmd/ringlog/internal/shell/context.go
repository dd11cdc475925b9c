package shell

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"
)

// The values of a global flag come from four places: the flag, its variable, the context in use, and the flag's
// default. setting looks them up in this order.

// ContextVariable names the context to use, before the one that the file has as current.
const ContextVariable = "RINGLOG_CONTEXT"

// Context is how a cluster is reached: what its fields name counts less than a flag, or the variable of a flag. It has
// the file of the token and never the token, since people share and copy such files.
type Context struct {
	Endpoints string `toml:"endpoints,omitempty" json:"endpoints,omitempty"` // comma separated
	ClusterID string `toml:"cluster-id,omitempty" json:"cluster_id,omitempty"`
	TokenFile string `toml:"token-file,omitempty" json:"token_file,omitempty"`
	TLSCA     string `toml:"tls-ca,omitempty" json:"tls_ca,omitempty"`
	TLSCert   string `toml:"tls-cert,omitempty" json:"tls_cert,omitempty"`
	TLSKey    string `toml:"tls-key,omitempty" json:"tls_key,omitempty"`
	Output    string `toml:"output,omitempty" json:"output,omitempty"` // text or json
}

// value returns what a context has for a flag. It is "" if the context has none, or no context has the flag.
func (x *Context) value(flag string) string {
	switch flag {
	case "endpoints":
		return x.Endpoints
	case "cluster-id":
		return x.ClusterID
	case "token-file":
		return x.TokenFile
	case "tls-ca":
		return x.TLSCA
	case "tls-cert":
		return x.TLSCert
	case "tls-key":
		return x.TLSKey
	case "output":
		return x.Output
	}
	return ""
}

// ContextOf makes a context of the flags that were given. Files are named so that they are found from every folder.
func ContextOf(c *cli.Context) (Context, error) {
	var err error
	// A flag counts if the command line or its variable has it. The default of a flag is not kept in a context.
	given := func(flag string, file bool) string {
		if !c.IsSet(flag) || c.String(flag) == "" {
			return ""
		}
		text := c.String(flag)
		if file {
			abs, failed := filepath.Abs(text)
			err = errors.Join(err, failed)
			return abs
		}
		return text
	}
	x := Context{Endpoints: given("endpoints", false), ClusterID: given("cluster-id", false),
		TokenFile: given("token-file", true), TLSCA: given("tls-ca", true), TLSCert: given("tls-cert", true),
		TLSKey: given("tls-key", true), Output: given("output", false)}
	// As Configure reads it: --json is -o json.
	if c.Bool("json") {
		x.Output = "json"
	}
	return x, err
}

// Contexts is the file of contexts, in TOML.
type Contexts struct {
	Current  string             `toml:"current,omitempty"` // "" is none
	Contexts map[string]Context `toml:"context,omitempty"`

	file string // where Write puts it; "" if there is no place for it
}

// ReadContexts reads the file of contexts, contexts.toml in the folder ringlog of the user's configuration. Without a
// file there are none.
func (sh *Shell) ReadContexts() (*Contexts, error) {
	all := &Contexts{Contexts: map[string]Context{}}
	dir := sh.Getenv("XDG_CONFIG_HOME")
	if home := sh.Getenv("HOME"); dir == "" && home != "" {
		dir = filepath.Join(home, ".config")
	}
	// A process without a home has no contexts.
	if dir == "" {
		return all, nil
	}
	all.file = filepath.Join(dir, "ringlog", "contexts.toml")
	// A file that may not be read counts as none: a verb with its own flags needs no context.
	raw, err := os.ReadFile(all.file)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return all, nil
	}
	if err != nil {
		return nil, Usagef("contexts: %w", err)
	}
	if err := toml.Unmarshal(raw, all); err != nil {
		return nil, Usagef("%s: %w: correct or remove the file", all.file, err)
	}
	return all, nil
}

// Names lists the contexts.
func (x *Contexts) Names() []string { return slices.Sorted(maps.Keys(x.Contexts)) }

// Write replaces the file, which holds no secret but says where they are.
func (x *Contexts) Write() error {
	if x.file == "" {
		return Usagef("there is no folder for contexts: set HOME or XDG_CONFIG_HOME")
	}
	raw, err := toml.Marshal(x)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(x.file), 0o700); err != nil {
		return err
	}
	// Another command may read it meanwhile.
	part, err := os.CreateTemp(filepath.Dir(x.file), "contexts-*")
	if err != nil {
		return err
	}
	_, err = part.Write(raw)
	// The rename is the change. A reader sees the old file or the new one.
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), x.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}

// Unknown is the error for a name that no context has.
func (x *Contexts) Unknown(name string) error {
	return NotFoundf("there is no context %q%s; ringlog context ls lists them", name, DidYouMean(name, x.Names(), ""))
}

// contextless are the verbs that use no context: those that run nodes, whose token is no matter of who calls them, and
// the one that mends contexts.
var contextless = []string{"context", "serve", "dev", "demo", "help", "completion"}

// setting returns a function that gives the value of a global flag: of the flag or its variable, else of the context in
// use, else the flag's default.
func (sh *Shell) setting(c *cli.Context) (func(flag string) string, error) {
	// The verb is the first argument that is left after the global flags.
	if slices.Contains(contextless, c.Args().First()) {
		return c.String, nil
	}
	all, err := sh.ReadContexts()
	if err != nil {
		return nil, err
	}
	name := cmp.Or(c.String("context"), all.Current)
	// Without a name, used is the zero value, which has nothing for any flag.
	used, there := all.Contexts[name]
	if !there && name != "" {
		// The current one may have been removed by hand.
		return nil, UsageError{fmt.Errorf("--context: %w", all.Unknown(name))}
	}
	return func(flag string) string {
		if !c.IsSet(flag) && used.value(flag) != "" {
			return used.value(flag)
		}
		return c.String(flag)
	}, nil
}
