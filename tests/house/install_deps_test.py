# SPDX-License-Identifier: Apache-2.0
"""scripts/install-deps on a made-up machine: dpkg-query, apt-get and id are small stand-ins."""

import os
import subprocess
import unittest

from house import ROOT, TreeTest

# A machine is a folder: `installed` lists its packages, `calls` what apt-get was asked for.
DPKG_QUERY = """#!/bin/sh
for name; do :; done
grep -qx "$name" "$MACHINE/installed" && printf installed
"""
APT_GET = """#!/bin/sh
printf '%s\\n' "$*" >>"$MACHINE/calls"
if [ -s "$MACHINE/failures" ]; then
  sed -i 1d "$MACHINE/failures"
  echo 'a mirror is away'
  exit 100
fi
case " $* " in
  *' install '*)
    [ -e "$MACHINE/does-nothing" ] || for word; do echo "$word"; done >>"$MACHINE/installed" ;;
esac
"""


# `python3 -m venv --clear DIR` makes a folder with a python3 that can import Mooncake once the pip
# beside it was called, unless the machine is `offline`.
PYTHON = """#!/bin/sh
echo "python3 $*" >>"$MACHINE/calls"
mkdir -p "$4/bin"
cat >"$4/bin/pip" <<'END'
#!/bin/sh
echo "pip $*" >>"$MACHINE/calls"
[ ! -e "$MACHINE/offline" ] || { echo 'no network'; exit 1; }
touch "$MACHINE/has-mooncake"
END
cat >"$4/bin/python3" <<'END'
#!/bin/sh
[ -e "$MACHINE/has-mooncake" ]
END
chmod +x "$4/bin/pip" "$4/bin/python3"
"""


class InstallDeps(TreeTest):
    files = {"installed": "", "calls": "", "failures": ""}

    def setUp(self):
        super().setUp()
        self.write("bin/dpkg-query", DPKG_QUERY, mode=0o755)
        self.write("bin/apt-get", APT_GET, mode=0o755)
        self.write("bin/sleep", "#!/bin/sh\n", mode=0o755)
        self.be_user(0)

    def be_user(self, number):
        self.write("bin/id", f"#!/bin/sh\necho {number}\n", mode=0o755)

    def install_deps(self, *arguments, without_mooncake=True):
        """(exit code, standard output, standard error)"""
        environment = dict(os.environ, MACHINE=str(self.root), XDG_DATA_HOME=str(self.root))
        environment.pop("TIERCEL_WITHOUT_MOONCAKE", None)
        if without_mooncake:
            environment["TIERCEL_WITHOUT_MOONCAKE"] = "1"
        environment["PATH"] = f"{self.root / 'bin'}{os.pathsep}{environment['PATH']}"
        run = subprocess.run(
            [str(ROOT / "scripts/install-deps"), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return run.returncode, run.stdout, run.stderr

    def calls(self):
        return (self.root / "calls").read_text().splitlines()

    def install_all(self):
        _, names, _ = self.install_deps("--list")
        self.write("installed", names)

    def test_lists_what_is_missing_and_changes_nothing(self):
        self.write("installed", "cmake\n")
        code, output, _ = self.install_deps("--list")
        self.assertEqual(code, 0)
        self.assertIn("libssl-dev", output.splitlines())
        self.assertNotIn("cmake", output.splitlines())
        self.assertEqual(self.calls(), [])

    def test_lists_nothing_when_all_is_there(self):
        self.install_all()
        self.assertEqual(self.install_deps("--list")[:2], (0, ""))

    def test_asks_apt_for_nothing_when_all_is_there(self):
        self.install_all()
        for user in (0, 1000):
            with self.subTest(user=user):
                self.be_user(user)
                code, _, messages = self.install_deps()
                self.assertEqual(code, 0, messages)
                self.assertEqual(len(messages.splitlines()), 1)
        self.assertEqual(self.calls(), [])

    def test_installs_only_what_is_missing_after_one_update(self):
        self.install_all()
        names = (self.root / "installed").read_text().split()
        self.write("installed", "".join(f"{name}\n" for name in names if name != "ccache"))
        code, _, messages = self.install_deps()
        self.assertEqual(code, 0, messages)
        update, install = self.calls()
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(install.endswith(" install --no-install-recommends ccache"), install)

    def test_takes_another_package_that_serves_as_well(self):
        self.install_all()
        names = (self.root / "installed").read_text().replace("pkg-config\n", "pkgconf\n")
        self.assertIn("pkgconf\n", names)
        self.write("installed", names)
        self.assertEqual(self.install_deps("--list")[:2], (0, ""))

    def test_without_root_names_the_packages_and_the_command(self):
        self.be_user(1000)
        code, _, messages = self.install_deps()
        self.assertEqual(code, 1)
        self.assertIn("apt-get install", messages)
        self.assertIn("libssl-dev", messages)
        self.assertEqual(self.calls(), [])

    def test_tries_once_more_when_apt_fails(self):
        self.write("failures", "once\n")
        code, _, messages = self.install_deps()
        self.assertEqual(code, 0, messages)
        self.assertEqual(len(self.calls()), 3)

    def test_gives_up_after_the_second_failure_and_shows_why(self):
        self.write("failures", "once\ntwice\n")
        code, _, messages = self.install_deps()
        self.assertEqual(code, 1)
        self.assertIn("a mirror is away", messages)
        self.assertEqual(len(self.calls()), 2)

    def test_does_not_believe_an_installation_that_installed_nothing(self):
        self.write("does-nothing", "")
        code, _, messages = self.install_deps()
        self.assertEqual(code, 1)
        self.assertIn("still missing", messages)

    def prepare_for_mooncake(self):
        self.write("bin/python3", PYTHON, mode=0o755)
        _, names, _ = self.install_deps("--list", "--for", "mooncake")
        self.write("installed", names)

    def test_mooncake_goes_into_an_environment_of_its_own_once(self):
        self.prepare_for_mooncake()
        code, _, messages = self.install_deps("--for", "mooncake")
        self.assertEqual(code, 0, messages)
        venv, pip = self.calls()
        self.assertEqual(venv, f"python3 -m venv --clear {self.root}/tiercel/mooncake")
        self.assertIn("mooncake-transfer-engine-non-cuda>=", pip)
        code, _, messages = self.install_deps("--for", "mooncake")
        self.assertEqual((code, len(self.calls())), (0, 2), messages)

    def test_mooncake_that_cannot_be_had_is_a_failure_with_the_command(self):
        self.prepare_for_mooncake()
        self.write("offline", "")
        code, _, messages = self.install_deps("--for", "dev", without_mooncake=False)
        self.assertEqual(code, 1)
        self.assertIn("no network", messages)
        self.assertIn("/bin/pip install 'mooncake-transfer-engine-non-cuda", messages)
        self.assertIn("TIERCEL_WITHOUT_MOONCAKE=1", messages)

    def test_a_preset_does_without_mooncake_on_request(self):
        self.prepare_for_mooncake()
        self.write("offline", "")
        self.assertEqual(self.install_deps("--for", "dev")[0], 0)
        self.assertEqual(self.calls(), [])

    def test_a_preset_adds_what_it_needs(self):
        self.install_all()
        _, names, _ = self.install_deps("--list", "--for", "lint")
        self.assertIn("clang-tidy-19", names.splitlines())
        self.assertEqual(self.install_deps("--list", "--for", "dev")[:2], (0, ""))
        code, _, messages = self.install_deps("--for", "coverage")
        self.assertEqual(code, 0, messages)
        self.assertTrue(self.calls()[-1].endswith(" gcovr"), self.calls())

    def test_refuses_a_preset_without_a_name(self):
        self.assertEqual(self.install_deps("--for")[0], 2)

    def test_refuses_an_unknown_argument(self):
        code, _, messages = self.install_deps("--force")
        self.assertEqual(code, 2)
        self.assertIn("--force", messages)


if __name__ == "__main__":
    unittest.main()
