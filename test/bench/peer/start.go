package peer

import "path/filepath"

func nginx(dir, role string) []string {
	return []string{"nginx", "-e", filepath.Join(dir, role+".err"), "-c", filepath.Join(dir, role+".conf")}
}

func startNginx(r *Run) error {
	for _, role := range []string{"front", "back"} {
		if err := r.config(role+".conf", "nginx.head", "nginx-"+role+".conf"); err != nil {
			return err
		}
		if err := r.add(role, role, nginx(r.Dir, role)...); err != nil {
			return err
		}
	}
	return nil
}

func startHAProxy(r *Run) error {
	for _, role := range []string{"front", "back"} {
		if err := r.config(role+".cfg", "haproxy.head", "haproxy-"+role+".cfg"); err != nil {
			return err
		}
		if err := r.add(role, role, "haproxy", "-db", "-f", filepath.Join(r.Dir, role+".cfg")); err != nil {
			return err
		}
	}
	return nil
}

// startHAProxyOne is one process with both halves, sockets in two namespaces: less memory, same work.
func startHAProxyOne(r *Run) error {
	v := r.view("both")
	v.FrontNS, v.BackNS = "namespace "+r.Topology.NS("front"), "namespace "+r.Topology.NS("back")
	if err := r.write("both.cfg", v, "haproxy.head", "haproxy-front.cfg", "haproxy-back.cfg"); err != nil {
		return err
	}
	return r.add("both", "front", "haproxy", "-db", "-f", filepath.Join(r.Dir, "both.cfg"))
}

func startSSLO(r *Run) error {
	if err := r.config("sslo.yml", "sslo.yml"); err != nil {
		return err
	}
	return r.add("sslo", "box", r.Binary, "run", "--drain", "1s", "--config", filepath.Join(r.Dir, "sslo.yml"))
}
