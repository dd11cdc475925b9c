package fsm

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestEncodedAsJSON fills what is written by hand at random, fields yet to come too, and compares it with
// what encoding/json makes of it: what is stored, and its digest, is the same for nodes of any build.
func TestEncodedAsJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var m meta
		var p producer
		for _, v := range []any{&m, &p} {
			fill(rng, reflect.ValueOf(v).Elem())
		}
		for v, encode := range map[any]func() ([]byte, error){&m: m.encode, &p: p.encode} {
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := encode(); err != nil || string(got) != string(want) {
				t.Fatalf("%T: %v\n%s\nwhere encoding/json writes\n%s", v, err, got, want)
			}
		}
	}
}

// fill gives v and what is in it random values; a third of it stays zero.
func fill(rng *rand.Rand, v reflect.Value) {
	if rng.IntN(3) == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(rng.Int64N(1<<33), rng.Int64N(1e9)/1000*int64(rng.IntN(1001))).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(rng, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(rng, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rng.IntN(4), 4))
		for i := range v.Len() {
			fill(rng, v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rng, v.Index(i))
		}
	case reflect.String:
		v.SetString([]string{
			"node-1", `a "quoted" \ one`, "<&>", "line\nfeed\x01", "zwölf\u2028", "\xff", "~\x7f",
		}[rng.IntN(7)])
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(rng.Int64() >> rng.IntN(63) * int64(1-2*rng.IntN(2)) >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint64, reflect.Uint32, reflect.Uint8:
		v.SetUint(rng.Uint64() >> rng.IntN(63) >> (64 - v.Type().Bits()))
	case reflect.Map: // none of these is written by hand
	case reflect.Float64:
		v.SetFloat(rng.Float64())
	}
}
