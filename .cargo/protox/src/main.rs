//! As much of `protoc` as the build of `etcd-client` asks for. The program that comes with protox does the same, and
//! takes a quarter longer to build, for the reading of options and the printing of back traces.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut includes, mut files, mut output) = (Vec::<PathBuf>::new(), Vec::<PathBuf>::new(), None);
    let (mut imports, mut source) = (false, false);
    let mut arguments = env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{} wants a path", argument.display()));
        match argument.to_str() {
            Some("--include_imports") => imports = true,
            Some("--include_source_info") => source = true,
            Some("-I") => includes.push(value()?.into()),
            Some("-o") => output = Some(value()?),
            Some(option) if option.starts_with('-') => return Err(format!("no such option: {option}").into()),
            _ => files.push(argument.into()),
        }
    }
    let output: OsString = output.ok_or("-o is missing")?;
    let mut compiler = Compiler::new(includes)?;
    compiler.include_imports(imports).include_source_info(source).open_files(files)?;
    Ok(fs::write(output, compiler.encode_file_descriptor_set())?)
}
