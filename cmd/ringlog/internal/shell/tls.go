package shell

import (
	"crypto/tls"
	"path/filepath"
	"strings"

	"github.com/ringrift/ringlog/internal/certs"
)

// TLS returns the configuration for endpoints with https, from the files that flags or variables name.
func (sh *Shell) TLS() (*tls.Config, error) {
	// A certificate without its key, or the reverse, is a mistake in any case.
	switch f := sh.files; {
	case f.Cert != "" && f.Key == "":
		return nil, Usagef("--tls-cert needs --tls-key")
	case f.Key != "" && f.Cert == "":
		return nil, Usagef("--tls-key needs --tls-cert")
	}
	config, err := certs.ClientConfig(sh.files)
	if err != nil {
		return nil, Usagef("TLS: %w", err)
	}
	return config, nil
}

// TLSEnvironment returns the variables of the files, for a command that calls the same cluster.
func (sh *Shell) TLSEnvironment() (env []string) {
	for _, v := range []struct{ name, file string }{
		{"RINGLOG_TLS_CA", sh.files.CA}, {"RINGLOG_TLS_CERT", sh.files.Cert}, {"RINGLOG_TLS_KEY", sh.files.Key},
	} {
		if v.file == "" {
			continue
		}
		// The command may be run in another folder.
		if file, err := filepath.Abs(v.file); err == nil {
			v.file = file
		}
		env = append(env, v.name+"="+v.file)
	}
	return env
}

// NodeURL makes the address that a member advertises a URL. If the endpoints are over TLS, so is this: the token must
// not be sent in clear because a node that takes both names its plain address.
func (sh *Shell) NodeURL(address string) string {
	if address != "" && strings.HasPrefix(sh.Endpoints[0], "https://") {
		return "https://" + strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://")
	}
	return URLOf(address)
}
