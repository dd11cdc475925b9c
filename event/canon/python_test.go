package canon

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/canonical.json with what python3 prints")

const (
	maxDepth = 128
	maxBytes = 1 << 20
)

func isCanonical(payload []byte) bool {
	v := Verifier{Data: payload, MaxDepth: maxDepth}
	return v.Payload()
}

// pythonSide is what a Python daemon does: one payload a line in, hash and canonical form out.
const pythonSide = `
import hashlib, json, sys
for line in sys.stdin.buffer:
    payload = json.dumps(json.loads(line), sort_keys=True)
    digest = hashlib.sha256(("training_completed:" + payload).encode()).hexdigest()
    sys.stdout.write(digest + " " + payload + "\n")
`

type vector struct {
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
	SHA256    string `json:"sha256"` // of training_completed:canonical
}

const vectorFile = "testdata/canonical.json"

func TestCanonicalFormIsPythons(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing; TestCanonicalVectors still proves it")
	}
	inputs := edgePayloads()
	gen := payloadGenerator{rand.New(rand.NewPCG(7, 254))}
	for len(inputs) < 12_000 {
		inputs = append(inputs, gen.payload())
	}
	vectors := askPython(t, python, inputs)
	for _, v := range vectors {
		checkVector(t, v)
	}
	if *update {
		writeVectors(t, vectors[:len(edgePayloads())+200])
	}
}

func TestCanonicalVectors(t *testing.T) {
	data, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 200 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, v := range vectors {
		checkVector(t, v)
	}
}

func checkVector(t *testing.T, v vector) {
	t.Helper()
	got, err := Rewrite([]byte(v.Input), maxDepth, maxBytes)
	if err != nil {
		t.Errorf("%.200q: %v", v.Input, err)
		return
	}
	if string(got) != v.Canonical {
		t.Errorf("input  %.300q\nwant   %.300q\ngot    %.300q", v.Input, v.Canonical, got)
		return
	}
	for _, text := range []string{v.Input, v.Canonical} {
		if isCanonical([]byte(text)) != (text == v.Canonical) {
			t.Errorf("the verifier is wrong about %.300q", text)
		}
	}
	if h := ContentHash("training_completed", got).String(); h != v.SHA256 {
		t.Errorf("%.200q: hash %s, python has %s", v.Input, h, v.SHA256)
	}
}

// The verifier accepts exactly what the rewriter leaves unchanged.
func TestVerifierAndRewriterAgree(t *testing.T) {
	gen := payloadGenerator{rand.New(rand.NewPCG(11, 254))}
	agree := func(payload []byte) (canonical bool) {
		out, err := Rewrite(payload, maxDepth, maxBytes)
		canonical = err == nil && bytes.Equal(out, payload)
		if isCanonical(payload) != canonical {
			t.Errorf("%.300q: canonical is %v (%.300q, %v), the verifier says otherwise", payload, canonical, out, err)
		}
		return canonical
	}
	const alphabet = "{}[]\",: \\0123456789abcdefABCDEFu-+.\x7f\xc3"
	yes := 0
	for range 30_000 {
		out, err := Rewrite([]byte(gen.payload()), maxDepth, maxBytes)
		if err != nil {
			t.Fatal(err)
		}
		i := gen.IntN(len(out))
		switch gen.IntN(4) {
		case 0:
			out[i] = alphabet[gen.IntN(len(alphabet))]
		case 1:
			out = slices.Delete(out, i, i+1)
		case 2:
			out = slices.Insert(out, i, "0 1,.e\"\\"[gen.IntN(8)])
		}
		if agree(out) {
			yes++
		}
		if agree(fmt.Appendf(nil, `{"n": %s}`, gen.number())) {
			yes++
		}
	}
	if yes < 10_000 || yes > 50_000 {
		t.Errorf("%d of 60 000 were canonical: the test is out of balance", yes)
	}
	for c := range rune(0x180) {
		agree(fmt.Appendf(nil, `{"s": "\u%04x"}`, c))
	}
}

func askPython(t *testing.T, python string, inputs []string) []vector {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, "-c", pythonSide)
	cmd.Stdin = strings.NewReader(strings.Join(inputs, "\n") + "\n")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python3: %v\n%s", err, complaints.String())
	}
	var vectors []vector
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		digest, canonical, _ := strings.Cut(lines.Text(), " ")
		vectors = append(vectors, vector{Input: inputs[len(vectors)], Canonical: canonical, SHA256: digest})
	}
	if len(vectors) != len(inputs) {
		t.Fatalf("python3 answered %d of %d lines", len(vectors), len(inputs))
	}
	return vectors
}

func writeVectors(t *testing.T, vectors []vector) {
	t.Helper()
	data, err := json.MarshalIndent(vectors, "", " ")
	if err == nil {
		err = os.WriteFile(vectorFile, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// edgePayloads are the corners of the form, one by one.
func edgePayloads() []string {
	payloads := []string{
		`{}`, ` { } `, `{"":""}`, `{"b":1,"a":2}`, `{"a":[]}`, `{"a":[{}]}`, "{\"a\":\t[ 1 ,2 ]\r}",
		`{"A":1,"a":2,"_":3,"Z":4,"aa":5,"a ":6,"a\u0000":7}`,
		`{"\uffff":1,"\ud800\udc00":2,"\ue000":3,"z":4,"é":5}`, // UTF-16 order would differ
		`{"a\"b":1,"a#":2,"a!":3,"a\\":4,"a[":5,"a]":6}`,       // escapes sort as what they mean
		`{"s":"\u007f\u0080\u00ff/\/\b\f\n\r\t\"\\\u001f\u2028"}`, `{"s":"😀\uD83D\uDE00"}`,
		`{"k":true,"l":false,"m":null}`,
		`{"i":` + strings.Repeat("9", MaxIntDigits) + `}`, `{"i":-` + strings.Repeat("1", MaxIntDigits) + `}`,
		`{"i":18446744073709551616,"j":-9223372036854775809}`,
		strings.Repeat(`{"a":[`, 60) + strings.Repeat(`]}`, 60),
	}
	for _, number := range strings.Fields(`0 -0 0.0 -0.0 1.0 1e0 1E5 1e+5 1e-5 1e15 1e16 1e17 -1e16
		123456789012345678 1.5e16
		9999999999999998.0 9999999999999999.0 0.0001 0.00001 0.00012 0.000123456789012345678 1e22 1e23 5e-324 4.9e-324
		2e-324 1e-400 -1e-400 1.7976931348623157e308 1.7976931348623158e308 2.2250738585072014e-308 2.2250738585072011e-308
		0.1 0.10 0.30000000000000004 100.0 100.50 123456.789 3.14159265358979 3.141592653589793 3.1415926535897932384626
		9007199254740993.0 4503599627370496.5 0.000100 999999999999999.9 99999999999999.99 1e1
		12345678901234.5 1234567890123.456`) {
		payloads = append(payloads, `{"n": `+number+`}`)
	}
	return payloads
}

// payloadGenerator writes JSON objects in every form JSON allows on one line.
type payloadGenerator struct{ *rand.Rand }

func (g payloadGenerator) payload() string {
	var b strings.Builder
	g.object(&b, g.IntN(5))
	return b.String()
}

func (g payloadGenerator) space(b *strings.Builder) {
	b.WriteString([]string{"", "", "", " ", "\t", "  ", "\r"}[g.IntN(7)])
}

func (g payloadGenerator) object(b *strings.Builder, depth int) {
	b.WriteByte('{')
	g.space(b)
	seen := map[string]bool{}
	for range g.IntN(8) {
		key := g.text()
		if seen[key] {
			continue
		}
		if len(seen) > 0 {
			b.WriteByte(',')
			g.space(b)
		}
		seen[key] = true
		g.quoted(b, key)
		g.space(b)
		b.WriteByte(':')
		g.value(b, depth-1)
	}
	b.WriteByte('}')
}

func (g payloadGenerator) value(b *strings.Builder, depth int) {
	g.space(b)
	switch n := g.IntN(10); {
	case n < 2 && depth > 0:
		g.object(b, depth)
	case n < 4 && depth > 0:
		b.WriteByte('[')
		for i := range g.IntN(5) {
			if i > 0 {
				b.WriteByte(',')
			}
			g.value(b, depth-1)
		}
		b.WriteByte(']')
	case n < 6:
		g.quoted(b, g.text())
	case n < 7:
		b.WriteString([]string{"true", "false", "null"}[g.IntN(3)])
	default:
		b.WriteString(g.number())
	}
	g.space(b)
}

// text draws from the ranges where escapes and orders differ.
func (g payloadGenerator) text() string {
	var b strings.Builder
	for range g.IntN(6) {
		switch g.IntN(6) {
		case 0:
			b.WriteRune(rune(g.IntN(0x20)))
		case 1:
			b.WriteRune(rune(0x7e + g.IntN(0x100)))
		case 2:
			b.WriteRune([]rune{0xd7ff, 0xe000, 0xfffd, 0xffff, 0x10000, 0x10ffff, 0x2028, '"', '\\', '/'}[g.IntN(10)])
		case 3:
			b.WriteRune(rune(0x10000 + g.IntN(0x100000)))
		default:
			b.WriteRune(rune('a' + g.IntN(4)))
		}
	}
	return b.String()
}

// quoted writes a string, each character in one of the forms that JSON allows.
func (g payloadGenerator) quoted(b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case shortEscape(r) != 0 && g.IntN(2) == 0:
			b.WriteString(`\` + string(rune(shortEscape(r))))
		case r < 0x20 || r == '"' || r == '\\' || g.IntN(3) == 0:
			escaped := string(appendEscapedRune(nil, r))
			if g.IntN(2) == 0 {
				escaped = strings.ReplaceAll(strings.ToUpper(escaped), `\U`, `\u`)
			}
			b.WriteString(escaped)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func appendEscapedRune(dst []byte, r rune) []byte {
	if r < 0x10000 {
		return fmt.Appendf(dst, `\u%04x`, r)
	}
	r -= 0x10000
	return fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
}

func (g payloadGenerator) number() string {
	switch g.IntN(7) {
	case 0: // any bit pattern
		f := math.Float64frombits(g.Uint64())
		for math.IsNaN(f) || math.IsInf(f, 0) {
			f = math.Float64frombits(g.Uint64())
		}
		return strconv.FormatFloat(f, []byte("eEfg")[g.IntN(4)], -1, 64)
	case 1: // any magnitude a person writes
		return strconv.FormatFloat(g.NormFloat64()*math.Pow10(g.IntN(40)-20), 'f', g.IntN(24), 64)
	case 2:
		return fmt.Sprintf("%de%+d", g.IntN(2_000)-1_000, g.IntN(330)-330)
	case 3:
		n := new(big.Int).Exp(big.NewInt(int64(g.IntN(100)-50)), big.NewInt(int64(g.IntN(90))), nil)
		return n.String()
	case 4: // few digits around the bounds of the exponent form
		return fmt.Sprintf("%d.%de%d", g.IntN(10), g.IntN(1_000), g.IntN(44)-22)
	case 5:
		return []string{"-0", "-0.0", "0.0", "0", "0e5", "-0.0e-7", "1.0", "1e16", "1e-05"}[g.IntN(9)]
	}
	return strconv.FormatInt(int64(g.Uint64())>>g.IntN(64), 10)
}

func TestHashRoundTripsThroughHex(t *testing.T) {
	h := ContentHash("training_completed", []byte("{}"))
	got, err := ParseHash(strings.ToUpper(hex.EncodeToString(h[:])))
	if err != nil || got != h {
		t.Errorf("ParseHash: %v, %v", got, err)
	}
	for _, bad := range []string{"", "00", strings.Repeat("g", 64), h.String() + "0"} {
		if _, err := ParseHash(bad); err == nil {
			t.Errorf("ParseHash(%q) succeeded", bad)
		}
	}
}
