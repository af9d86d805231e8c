//! A C program, compiled against the header and linked with the library, as a user's would be.

use std::{env, path::Path, process::Command};

#[test]
fn c_program_runs_code_with_a_host_opcode_and_a_host_contract() {
    assert_eq!(niwaki_capi::niwaki_abi_version(), 1);
    // Not of the build: its folder may have been another one.
    let folder = env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this test");
    let here = Path::new(&folder);
    let this = env::current_exe().expect("a test is a file");
    let library = this.parent().expect("in the folder of the library");
    let program = this.with_extension("c-program");
    let built = Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1"])
        .arg(here.join("tests/program.c"))
        .arg("-I")
        .arg(here.join("include"))
        .arg("-L")
        .arg(library)
        .args(["-lniwaki_capi", "-Wl,-rpath"])
        .arg(format!("-Wl,{}", library.display()))
        .arg("-o")
        .arg(&program)
        .output()
        .expect("a C compiler is there: native libraries were built with it");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    let ran = Command::new(&program).output().expect("it was just linked");
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    assert_eq!(ran.stdout, b"ok\n");
}
